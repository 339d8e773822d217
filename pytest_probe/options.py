"""Every option once, and every feature and command.

All else derives from an option's row: the command line and the ini key, the documentation, the value and its errors,
what run.json says of it, the command that runs a case again, and whether two runs may differ in it.
"""

# 'Help' formatting (pytest's own rules):
# Start with capitalized letters.
# If a single phrase, do not end with period. If more than one phrase, all phrases end with periods.

from __future__ import annotations

import argparse
import os
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pytest_probe.option_types import (
    Choice,
    Chosen,
    Directions,
    Dumps,
    FileOrFolder,
    Flag,
    FlagOrWord,
    Folder,
    Globs,
    Keyed,
    Maybe,
    Modes,
    Names,
    Namespaces,
    Needing,
    Number,
    Place,
    Report,
    ResultsFolder,
    Size,
    Text,
    Whole,
    WritableFolder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from pytest_probe.capture.online.address import Listen
    from pytest_probe.model.dump import Direction
    from pytest_probe.option_types import Reads

    # Words, or what they are where a value decides it.
    Words = str | Callable[["Options"], str]

T = TypeVar("T")
DTYPE_CHOICES = ("recorded", "float64", "float32", "float16", "bfloat16")
DIRECTION_CHOICES: Mapping[str, tuple[Direction, ...]] = {
    "both": ("forward", "backward"),
    "forward": ("forward",),
    "backward": ("backward",),
}
# What --probe-mode asks for.
ACCURACY, TIME, MEMORY = "acc", "time", "mem"
# The standard of features/self_check, which may be meant where no run has it, and its questions.
SELF = "self"
QUESTIONS = ("wider-dtype", "cpu", "no-jumps", "finite")
# In the order in which they are asked: what depends on other memory, or on chance, is known before bits are compared.
RELATION_NAMES = ("all-written", "guard", "again", "out", "inplace", "alias", "batch", "order", "layout", "stream")

# Why two runs that are used together may differ, by what for: "benchmark", "baseline", "merge" or "resume".
SELECTS = {
    "benchmark": "cases on one side only are listed at the end",
    "baseline": "cases are found by their ids; what did not run stays",
}
JUDGES = {
    "benchmark": "the errors are compared, and not the verdicts",
    "baseline": "metrics are compared, whatever judges them",
}
MEASURES = dict.fromkeys(("benchmark", "baseline"), "times are compared where both runs have them")
OTHER_DEVICE = {"benchmark": "a benchmark is another device, whose kernels, calls and modes are its own"}
OTHER_ENVIRONMENT = {
    "baseline": "a baseline is kept for it: what differs is shown, and bits are compared of the same only"
}
PROJECT = {
    "baseline": "code and data of the project change with it, and what they change is seen as a metric that moved"
}
# What a run has by itself: how an option says that it needs this, and what is so where another option takes it away.
CAPABILITIES = {
    "device": ("a device", "no device runs"),
    "records": ("recorded calls", "calls are drawn"),
    "known": ("cases that are known before the run", "calls come while the run goes on"),
    "cases": ("cases that run", "stored results are compared and no case runs"),
    "verdicts": ("verdicts", "nothing is judged without acc"),
    "untimed": ("a run that measures no times and no memory", "it measures them"),
    "reference": ("a float64 reference", "there is none"),
    "one_side": ("results of one side", "two sides are compared"),
    "own_call": ("calls that the device makes in its own way", "they are made in another way"),
}


class Option(Generic[T]):
    """One option, and its value in the settings.

    `pytest --help` shows the first line of help, the documentation both. type reads what the user wrote; a feature's
    own type is an import path, which is imported when a run probes. cli is False for what only an ini key can say, ini
    False for what a file must not: what is asked for once; probes: does a run probe for which a file alone says it?
    in_run_file: has run.json the value? repeated: does the command that runs one case again repeat it? needs has the
    CAPABILITIES that a run must have for this option, and the options that must be given with it, as "out" or
    "standard=self"; takes has the capabilities that a run with this option does not have. Both are words with spaces
    between, or a function of the settings that gives them. apart has the options that do not go with this one where no
    capability says so, each with the reason. check is the import path of a function of what the user wrote and the
    settings, which is called where the option is set and raises SettingsError; before_xdist of a function of pytest's
    configuration, which is called before pytest-xdist reads its own options. without_workers says why -n does not go
    with the option. standalone is the import path of a
    function of pytest's configuration and of what was asked, which is called in every process of a run that has the
    option: the option does not make the run probe. question is the import path of the feature that a run with the
    option has, whose question its items ask.

    Two runs that differ in an option are two runs, which nothing mixes, unless never_matters_because says why it
    changes neither a verdict nor what is selected, or may_differ says why it does not matter for a use of both; by
    names the field of a run's identity that is compared instead of the option.
    """

    attribute: str

    def __init__(
        self,
        name: str,
        help: str,
        type: Reads[T] | str,
        metavar: str | None = None,
        default: str | None = None,
        *,
        cli: bool = True,
        ini: bool = True,
        in_run_file: bool = True,
        repeated: bool = False,
        needs: Words = "",
        takes: Words = "",
        apart: Mapping[str, str] = {},
        check: str = "",
        before_xdist: str = "",
        without_workers: str = "",
        probes: bool = False,
        standalone: str = "",
        question: str = "",
        never_matters_because: str = "",
        by: str = "",
        may_differ: Mapping[str, str] = {},
    ) -> None:
        self.name = name
        self.flag = f"--probe-{name}"
        self.key = "probe_" + name.replace("-", "_")
        self.help, _, self.details = help.partition("\n")
        self.kind = "string" if isinstance(type, str) else type.kind
        self._type = type
        self.metavar = metavar
        self.default = default
        self.cli = cli
        self.ini = ini
        self.in_run_file = in_run_file
        self.repeated = repeated
        self._needs = needs
        self._takes = takes
        self.apart = apart
        self.check = check
        self.before_xdist = before_xdist
        self.without_workers = without_workers
        self.probes = probes
        self.standalone = standalone
        self.question = question
        self.never_matters_because = never_matters_because
        self.by = by
        self.may_differ = may_differ

    @property
    def words(self) -> tuple[str, ...]:
        """What a flag may have behind it."""
        return getattr(self._type, "words", ())

    @property
    def type(self) -> Reads[T]:
        found: Reads[T] = imported(self._type)() if isinstance(self._type, str) else self._type
        return found

    def needs(self, settings: Options) -> list[str]:
        return (self._needs if isinstance(self._needs, str) else self._needs(settings)).split()

    def takes(self, settings: Options) -> list[str]:
        return (self._takes if isinstance(self._takes, str) else self._takes(settings)).split()

    def __set_name__(self, owner: object, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, settings: None, owner: object) -> Option[T]: ...
    @overload
    def __get__(self, settings: Options, owner: object) -> T: ...
    def __get__(self, settings: Options | None, owner: object) -> Option[T] | T:
        if settings is None:
            return self
        value: T = settings.values[self.attribute]
        return value


class Options:
    """What the user asked for, by the name that run.json has for it."""

    values: Mapping[str, Any]

    # fmt: off
    dumps = Option("dump",
        "Check the API calls of this dump: a file, a folder of dumps, an archive of one, or a pattern. Repeatable.",
        Dumps(), "PATH", needs="known", probes=True, by="dumps", may_differ=OTHER_ENVIRONMENT)
    devices = Option("device",
        "Device under test (default: the accelerator found, else cpu), or recorded: the outputs that the dump "
        "stored\nSeveral are shared among the workers of -n. With recorded no device runs.", Names(alone=("recorded",)),
        "D[,D...]", needs=lambda asked: _of_devices(asked.values["devices"], asked),
        takes=lambda asked: "device" if "recorded" in asked.values["devices"] else "", probes=True, by="devices",
        may_differ=OTHER_DEVICE | OTHER_ENVIRONMENT)
    dtypes = Option("dtype", "Run in recorded, float64, float32, float16, bfloat16 (default: recorded)",
        Names(*DTYPE_CHOICES), "T[,T...]", "recorded", needs="device",
        may_differ=SELECTS | {"benchmark": "the ratios of errors are compared between dtypes as well"})
    inputs: Option[str] = Option("inputs",
        "Where inputs come from: auto, generated, stored, exact (default: auto)\nauto: stored tensors where the "
        "dump has them, else generated. exact: integers of which all sums of products are exact, so that every bit "
        "must be right.",
        Choice("auto", "generated", "stored", "exact"), "KIND", "auto", repeated=True,
        # The inputs of --probe-outputs are those of the runs that left them.
        needs=lambda asked: "device" if asked.inputs in ("generated", "exact") and not asked.outputs else "")
    data_dir = Option("data-dir", "Folder of the dump's tensors, if it is not next to the dump\nFor a run of one dump.",
        Folder(), "DIR", repeated=True, may_differ=PROJECT)
    seed = Option("seed", "Seed of the generated inputs (default: 0)",
        Whole(0, 2**63, "give a whole number from 0 to 2**63 - 1"), "N", "0", repeated=True)
    apis = Option("api",
        "Run only what matches by API, call or entry name, for example 'Functional.conv*'. Repeatable.", Globs(),
        "GLOB", may_differ=SELECTS)
    skip_apis = Option("skip-api", "Leave out the names that match, even if --probe-api names them. Repeatable.",
        Globs(), "GLOB", may_differ=SELECTS)
    unique = Option("unique",
        "Fold records that are alike into the first of them\nThey differ in the values of floating tensors alone. "
        "The first one has Max and Min as wide as all of theirs.", Flag(), repeated=True, needs="known cases",
        may_differ={"baseline": SELECTS["baseline"]})
    directions = Option("direction", "Run both, forward or backward (default: both)", Directions(DIRECTION_CHOICES),
        "DIRECTION", "both", may_differ=SELECTS)
    standard: Option[str] = Option("standard",
        "Standard that judges: auto, noise, exact, finite, self, or a tool's, listed at the end (default: "
        "auto)\nself has no reference.",
        Text(), "NAME", "auto", repeated=True, takes=lambda asked: "reference" if asked.standard == SELF else "",
        needs=lambda asked: {SELF: "device records untimed own_call", "benchmark": "benchmark"}.get(asked.standard, ""),
        may_differ={"benchmark": JUDGES["benchmark"]})
    standards_file = Option("standards-file",
        "YAML file with the project's own rules and limits\nFor some APIs, each with a justification; or msprobe's "
        "config.json with white_list and black_list.", Place(), "FILE", repeated=True, may_differ=JUDGES)
    allow = Option("allow",
        "Device modes that may explain an error, as tf32, ftz, or none (default: auto, the modes that the framework "
        "allows)\nModes: tf32, hf32, bf16x3, bf16, ftz, reduced-reduction, short-accumulation, truncate, fast-math.",
        Modes(),
        "MODE[,MODE...]", "auto", repeated=True, may_differ=JUDGES | OTHER_DEVICE)
    repeat = Option("repeat",
        "Run the device N times, and report results that differ (default: 1)\nAll runs have the same inputs.",
        Whole(1, 2**31, "give a whole number, 1 or more"), "N", "1", repeated=True, needs="device",
        may_differ={"benchmark": "each side has the errors of its worst run",
                    "baseline": "the header has it, and a spread is kept with the cases"})
    flops = Option("flops",
        "Sample products and convolutions of more than N float64 operations; inf: never (default: 2e10)",
        Number(lambda count: count >= 1, "give a number of operations, as 2e10, or inf to sample nothing"), "N", "2e10",
        repeated=True, may_differ={"baseline": "a sample is one of the same outputs"})
    mode: Option[tuple[str, ...]] = Option("mode",
        "What is found out of each case: acc, time, mem (default: acc)\nacc: is the result right? time without acc "
        "makes no reference.", Names(ACCURACY, TIME, MEMORY), "WHAT[,WHAT...]", "acc", repeated=True,
        needs="device records", takes=lambda asked: "untimed" if ACCURACY in asked.mode else "untimed verdicts",
        may_differ=MEASURES)
    time_budget = Option("time-budget",
        "Seconds that a case's time is measured for (default: 0.05)\nA call that takes longer is timed once.",
        Number(lambda seconds: 0 <= seconds < 1e6, "give seconds, 0 or more, as 0.05"), "S", "0.05", repeated=True,
        may_differ=MEASURES)
    time_limit = Option("time-limit",
        "Fail cases that take so many times the time of --probe-benchmark, else of --probe-baseline\n1.15 is above "
        "the noise.",
        Maybe(Number(lambda factor: 0 < factor < float("inf"), "give a factor above 0, as 1.15")), "FACTOR",
        repeated=True, check="pytest_probe.features.timing.plugin.check_limit", may_differ=MEASURES)
    benchmark: Option[Path | None] = Option("benchmark",
        "Compare errors and times with those of another run's --probe-out\nOr DIR is the other folder of "
        "--probe-outputs.",
        ResultsFolder(), "DIR", repeated=True, needs="reference one_side",
        may_differ=JUDGES)
    outputs: Option[Path | None] = Option("outputs",
        "Judge the outputs in this folder by those in the folder of --probe-benchmark, without a "
        "reference\nPaddleAPEX's folder, or a --probe-out with --probe-save=all. Nothing runs on a device.",
        Place(), "DIR", repeated=True,
        needs="benchmark known records one_side", takes="device cases one_side",
        question="pytest_probe.features.outputs.OutputsOfTwo", may_differ=JUDGES)
    against: Option[Path | None] = Option("against",
        "Compare each call of the dump with the same call of this dump\nA file or a folder. Equal, inherited from "
        "its inputs, or an error of its own? Nothing runs on a device.", FileOrFolder(), "PATH", repeated=True,
        needs="known records one_side", takes="device cases one_side",
        check="pytest_probe.features.against.plugin.check",
        question="pytest_probe.features.against.plugin.Against", may_differ=JUDGES)
    listen: Option[Listen | None] = Option("listen",
        "Judge the calls that programs send while they run\nThey send with PrecisionDebugger(online=...). HOST:PORT "
        "(,tls=DIR of certificates, ,limit=SIZE of a tensor), a shared folder, file:///FOLDER, or msprobe's "
        "config.json. No device runs.",
        "pytest_probe.features.online.plugin.Listening", "ADDRESS", needs="records", takes="device known",
        without_workers="one process judges calls as they come; several can listen at one shared folder; leave -n out",
        never_matters_because="it says where calls come from")
    against_map = Option("against-map",
        "YAML file that maps the other side of --probe-against\nWhat it calls modules, which it fuses, and how its "
        "ranks hold tensors.", Place(), "FILE", repeated=True,
        needs="against", may_differ=JUDGES)
    against_call: Option[str | None] = Option("against-call",
        "Make each call by a second implementation, too, which this module or file registers: which side is "
        "wrong?\nIt says which bits differ, and by what.", "pytest_probe.features.against_call.Module",
        "MODULE", repeated=True, needs="device records untimed", takes="one_side own_call",
        question="pytest_probe.features.against_call.AgainstCall", may_differ=JUDGES)
    compile = Option("compile",
        "Make each call through compilers (inductor, aot_eager, to_static, ..., or the project's)\nSeveral: each "
        "case by each of them. dynamic: for any sizes, and with other sizes first.",
        Names(), "BACKEND[,BACKEND][,dynamic]", repeated=True,
        needs="device records untimed own_call", takes="own_call",
        apart={"standard=finite": "there is no reference for what a compiler makes"},
        question="pytest_probe.features.compiled.Compiled",
        may_differ=OTHER_DEVICE | OTHER_ENVIRONMENT)
    framework: Option[str | None] = Option("framework",
        "Make the device's calls by this framework\nNAME is its module; records are another framework's.",
        "pytest_probe.features.other_framework.Framework", "NAME", repeated=True, needs="device records",
        takes="own_call", may_differ=OTHER_DEVICE)
    reference_framework: Option[str | None] = Option("reference-framework",
        "Compute the float64 reference by this framework\nNAME is its module; records are another framework's.",
        "pytest_probe.features.other_framework.Framework", "NAME", repeated=True,
        needs="records cases reference", may_differ=JUDGES)
    against_framework: Option[str | None] = Option("against-framework",
        "Make the device's calls by this framework as well: which side is nearer to float64?\nNAME is its module. "
        "Both get equal inputs. It says which bits differ, and by how much.",
        "pytest_probe.features.other_framework.Framework", "NAME",
        repeated=True, needs="device records untimed own_call", takes="one_side own_call",
        apart={"reference-framework": "both sides are judged by the record's own framework"},
        question="pytest_probe.features.against_call.AgainstFramework", may_differ=JUDGES)
    baseline = Option("baseline",
        "Fail the cases that got worse than this file says; --probe-baseline-update writes it", Place(), "FILE",
        repeated=True, needs="one_side", probes=True, may_differ=JUDGES)
    update = Option("baseline-update",
        "Write what moved into --probe-baseline\nWith --probe-repeat=N each case runs with N seeds, which tells how "
        "far its metrics spread.", Flag(), ini=False, in_run_file=False,
        needs="baseline", may_differ=JUDGES)
    emulate = Option("emulate",
        "Compute 16 bit in float32, and round\nIt rounds inputs and outputs, on a CPU that has no kernels of 16 bit "
        "(Paddle's).", Flag(),
        repeated=True, needs="device untimed", apart={"compile": "the compiler's kernels run",
        "framework": "the other framework has kernels of 16 bit"},
        may_differ=OTHER_ENVIRONMENT | {"benchmark": "emulated 16 bit is another device"})
    reference_device = Option("reference-device", "Device on which the float64 reference runs (default: cpu)", Text(),
        "D", "cpu", repeated=True, may_differ={"baseline": "float64 references agree in the digits that are kept"})
    fuzz: Option[tuple[str, Path | None] | None] = Option("fuzz",
        "Search around the records of each API with N drawn calls, or quick (25), thorough (1,000), nightly "
        "(10,000)\nIt searches in the place of the API's cases; quick has the same calls each time. Without a dump: "
        "of the APIs of --probe-api. Each call that fails is shrunk, and with save=DUMP appended to the dump in that "
        "folder.",
        "pytest_probe.features.fuzz.plugin.Search", "N[,save=DUMP]", repeated=True, takes="records",
        may_differ=SELECTS)
    relations: Option[tuple[str, ...]] = Option("relations",
        "Ask of each call what must hold bit for bit without a reference: all, or again, alias, all-written, batch, "
        "guard, inplace, layout, order, out, stream", Chosen(*RELATION_NAMES), "NAME[,NAME...]",
        repeated=True, needs="device verdicts", apart=dict.fromkeys(("against-call", "compile"),
        "calls are made by several implementations, and one is asked"), may_differ=JUDGES)
    self_asked: Option[tuple[str, ...]] = Option("self",
        "Questions of --probe-standard=self: wider-dtype, cpu, no-jumps, finite (default: all)",
        Chosen(*QUESTIONS), "NAME[,NAME...]", repeated=True,
        needs="standard=self", may_differ=JUDGES)
    sensitivity = Option("sensitivity",
        "Spoil outputs that passed, and judge them again: what would have been found?\n--probe-sensitivity=90 fails "
        "the run where less than 90 % of its cases prove something.",
        FlagOrWord("0", *map(str, range(1, 101))), "PERCENT", repeated=True, needs="cases verdicts reference",
        may_differ=JUDGES)
    ranks: Option[tuple[int, str] | None] = Option("ranks",
        "Make the collectives of a dump again by N processes\nHere or on --probe-cluster; it judges what each "
        "receives. NAME is torch.distributed's backend (default: gloo).",
        Keyed(Whole(2, 4097, "give a whole number, 2 to 4096"), backend=(Text(), "gloo")), "N[,backend=NAME]",
        repeated=True, may_differ=JUDGES)
    strict = Option("strict",
        "Warnings fail, and so do vanished cases and other bits of the baseline\nThese are cases of the baseline "
        "that have vanished or have other bits on the same device.",
        Flag(), repeated=True, never_matters_because="it says which verdicts fail, and changes none")
    out = Option("out",
        "Write results and msprobe's CSV files into this folder\nIt must not hold results yet.", Place(),
        "DIR", in_run_file=False, probes=True, never_matters_because="it says where results go")
    html: Option[Path | None] = Option("html",
        "Write a page about the run, to open in a browser\nIt has tables and plots, and shows where errors begin.",
        Needing(Report(), "jinja2", "report"), "FILE", in_run_file=False, never_matters_because="it writes a report")
    history = Option("history",
        "Append the run to this SQLite file; pytest-probe history shows how a metric moved over runs", Report(), "FILE",
        in_run_file=False, never_matters_because="it writes a report")
    save = Option("save",
        "Save tensors of failing cases, or of all, into --probe-out\nThese are inputs, outputs and gradients of "
        "both sides.",
        Maybe(Choice("failing", "all")), "failing|all", needs="out",
        apart={"outputs": "the tensors are in its folders already"},
        never_matters_because="it keeps tensors besides the results")
    resume = Option("resume",
        "Go on with the run in --probe-out that was killed\nOr that was interrupted. What has a result does not run "
        "again.",
        Flag(), ini=False, in_run_file=False,
        needs="out known",
        never_matters_because="it goes on with the same run")
    shard: Option[tuple[int, int] | None] = Option("shard",
        "Run the I-th of N parts of the cases; pytest-probe merge joins their results\nParts are dealt out by "
        "estimated cost, alike on each machine.", "pytest_probe.features.shard.Part", "I/N", ini=False,
        needs="known",
        may_differ=SELECTS | {"merge": "each folder is another shard; their numbers are checked by themselves"})
    cache: Option[tuple[Path, int] | None] = Option("cache",
        "Keep the numbers of slow references in this folder (default size: 10GB)\nA slow one takes more than 5 ms. "
        "The next run takes them from there, on another device or another build. The folder grows up to SIZE; the "
        "least recently used goes first.", Keyed(WritableFolder(), size=(Size(), "10GB")), "DIR[,size=SIZE]",
        never_matters_because="cached numbers are equal, bit for bit")
    timeout = Option("timeout",
        "End the process in which a case takes longer than S seconds; 0: never (default: 300)\nA case with all its "
        "runs.",
        Number(lambda seconds: 0 <= seconds < 1e9, "give seconds, 0 or more; 0 is no limit"), "S", "300",
        never_matters_because="a case that ends in time has the same verdict with any limit")
    isolate = Option("isolate",
        "Run cases in a process of their own, which is replaced when it dies\nWith -n they run so anyway.", Flag(),
        in_run_file=False, needs="known", apart={"cluster": "each case runs in a process of its device already"},
        before_xdist="pytest_probe.features.isolate.use_one_worker",
        without_workers="under -n each worker is a process of its own already; leave one of the two out",
        never_matters_because="each process computes the same")
    cluster: Option[tuple[str, str | None] | None] = Option("cluster",
        "Run the cases on a Ray cluster: ray, or ray://HOST:PORT\nOne process a device. ray is the cluster of "
        "RAY_ADDRESS, else this machine. NAME is what Ray calls the devices, as NPU (default: GPU where a node has "
        "one, else CPU).",
        "pytest_probe.features.cluster.plugin.Address", "ADDRESS[,resource=NAME]",
        needs="records known",
        without_workers="-n starts processes on this machine, and a cluster has its own; leave one of the two out",
        never_matters_because="each process computes the same")
    capture = Option("capture",
        "Record the API calls of this test run as a dump in DIR\nBelow that folder. Nothing is checked.",
        Maybe(Text()), "DIR", in_run_file=False, never_matters_because="nothing is checked")
    asserts = Option("asserts",
        "Explain failing asserts of the tests' own\ntorch.testing.assert_close, numpy.testing.assert_allclose, "
        "assert torch.allclose and the like: what the difference looks like. With =all also how much of its "
        "tolerance each passing one uses.", FlagOrWord("failing", "all"), "all", in_run_file=False,
        standalone="pytest_probe.features.asserts.plugin.register",
        never_matters_because="it explains tests of the user's own")
    collect = Option("collect", "Collect the dumps in the folders that pytest collects", Flag(), cli=False,
        in_run_file=False, probes=True, may_differ=SELECTS)
    namespaces = Option("namespaces",
        "Namespaces that a dump may call in addition to the framework's, one on each line: Prefix=python.module",
        Namespaces(), cli=False, may_differ=OTHER_DEVICE | PROJECT)
    # fmt: on


def _of_devices(names: tuple[str, ...], asked: Options) -> str:
    """What named devices need: with --probe-listen one of them is a benchmark, and several share out known cases."""
    if names in ((), ("recorded",)):
        return ""
    return "device" if not asked.listen else "known" if len(names) > 1 else ""


OPTIONS: tuple[Option[Any], ...] = tuple(row for row in vars(Options).values() if isinstance(row, Option))
NAMED = {option.name: option for option in OPTIONS}
# Each feature, by its class, with when a run has it; in the order in which features change what runs, judge a case and
# end a run.
FEATURES: Mapping[str, Callable[[Options], object]] = {
    "pytest_probe.features.unique.Unique": lambda asked: asked.unique,
    "pytest_probe.features.fuzz.plugin.Fuzz": lambda asked: asked.fuzz,
    "pytest_probe.features.shard.Shard": lambda asked: asked.shard,
    "pytest_probe.features.cache.plugin.References": lambda asked: asked.cache,
    "pytest_probe.features.timeout.Timeout": lambda asked: asked.timeout,
    "pytest_probe.features.isolate.Isolated": lambda asked: asked.isolate,
    "pytest_probe.features.result_files.ResultFiles": lambda asked: asked.out,
    **{option.question: attrgetter(option.attribute) for option in OPTIONS if option.question},
    "pytest_probe.features.online.plugin.Online": lambda asked: asked.listen,
    "pytest_probe.features.collectives.plugin.Collectives": lambda asked: "recorded" in asked.devices or asked.ranks,
    "pytest_probe.features.self_check.plugin.SelfCheck": lambda asked: asked.standard in (SELF, "auto"),
    "pytest_probe.features.relations.plugin.AskRelations": lambda asked: asked.relations,
    "pytest_probe.features.sensitivity.SensitivityOfPasses": lambda asked: asked.sensitivity,
    "pytest_probe.features.other_framework.ByOtherFramework": lambda asked: (
        asked.framework or asked.reference_framework or asked.standard == "auto"
    ),
    "pytest_probe.features.benchmark.plugin.AgainstBenchmark": lambda asked: asked.benchmark and not asked.outputs,
    "pytest_probe.features.gate.plugin.AgainstBaseline": lambda asked: asked.baseline,
    "pytest_probe.features.timing.plugin.Timing": lambda asked: TIME in asked.mode or MEMORY in asked.mode,
    "pytest_probe.features.markdown.Markdown": lambda asked: asked.out or "GITHUB_ACTIONS" in os.environ,
    "pytest_probe.features.history.History": lambda asked: asked.history,
    "pytest_probe.features.html.plugin.Html": lambda asked: asked.html or asked.out,
    "pytest_probe.features.resume.Resume": lambda asked: asked.resume,
    "pytest_probe.features.cluster.plugin.OnCluster": lambda asked: asked.cluster,
}
# What compares two functions for `probe.check(..., against=...)`.
TWO_CALLS = "pytest_probe.features.against_call.TwoCalls"
# What asks relations for `probe.check(..., relations=...)`.
RELATIONS = "pytest_probe.features.relations.checks.asked_by_check"
# What checks a collective for `probe.check_collective(...)`.
COLLECTIVES = "pytest_probe.features.collectives.replay.UserCollectives"
# Behind so many columns `pytest --help` says what an ini key means.
_KEY_COLUMNS = 22
# What is not a test run, by its module, in the order of the help.
COMMANDS = (
    "pytest_probe.cli.show",
    "pytest_probe.cli.doctor",
    "pytest_probe.features.benchmark.cli",
    "pytest_probe.capture.cli",
    "pytest_probe.features.gate.cli",
    "pytest_probe.features.shard",
    "pytest_probe.features.html.cli",
    "pytest_probe.features.history",
)
# The parts of `pytest --help`; one without names has the options that no other part has.
SECTIONS = {
    "begin here": "dump device dtype api standard strict out html",
    "run": "inputs data-dir seed repeat mode time-budget time-limit emulate reference-device flops listen capture",
    "select": "direction skip-api unique fuzz",
    "judge": "standards-file allow framework reference-framework compile ranks",
    "compare": "benchmark baseline baseline-update against against-map outputs",
    "ask more": "",
    "report": "save history",
    "scale": "shard resume cache timeout isolate cluster",
}


def imported(path: str) -> Any:
    """What an import path names."""
    from importlib import import_module

    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def standards() -> dict[str, str]:
    """What --probe-standard knows of tools, by name. It imports what judges, so an option's help cannot have it."""
    from pytest_probe.standards.tools import TOOLS
    from pytest_probe.standards.tools.table import RULES

    rules = dict.fromkeys(RULES, "this one rule of msprobe, for every API")
    return {name: tool.release.help for name, tool in TOOLS.items()} | rules


def register(parser: pytest.Parser) -> None:
    """Add all options to pytest's command line and ini keys."""
    named = " ".join(SECTIONS.values()).split()
    others = [option.name for option in OPTIONS if option.cli and option.name not in named]
    for title, names in SECTIONS.items():
        group = parser.getgroup(f"probe {title}", f"API precision checks: {title}")
        for name in names.split() or others:
            _add_option(group, NAMED[name])
    for option in OPTIONS:
        if option.ini:
            parser.addini(option.key, _ini_help(option), type=_ini_type(option), default=None)


class _StoreWord(argparse.Action):
    """Stores what stands behind "=" in the name of the option."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, name: str | None = None) -> None:
        setattr(namespace, self.dest, str(name).partition("=")[2])


def _add_option(group: pytest.OptionGroup, option: Option[Any]) -> None:
    if option.kind == "flag":
        group.addoption(option.flag, action="store_true", default=None, dest=option.key, help=option.help)
        # Options of their own: with an argument that may be left out, argparse takes a path behind the flag for it.
        if names := [f"{option.flag}={word}" for word in option.words]:
            group.addoption(*names, action=_StoreWord, nargs=0, dest=option.key, help=argparse.SUPPRESS)
    else:
        action = "append" if option.kind == "list" else "store"
        group.addoption(option.flag, action=action, metavar=option.metavar, dest=option.key, help=option.help)


def _ini_help(option: Option[Any]) -> str:
    """`pytest --help` lists the keys, too. A long key says itself which option it is, and pytest would begin a new line
    for more."""
    if not option.cli:
        return option.help
    return f"See {option.flag}" if len(f"{option.key} ({_ini_type(option)}):") < _KEY_COLUMNS else ""


def _ini_type(option: Option[Any]) -> Any:
    """The ini type by pytest's name; 8.3 knows no integers."""
    import pytest

    if option.kind == "int":
        return "int" if pytest.version_tuple >= (8, 4) else "string"
    return {"flag": "bool", "list": "linelist"}.get(option.kind, "string")
