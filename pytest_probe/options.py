"""Every option once: its name, default and help become the command line, the ini keys and the documentation."""

# 'Help' formatting (pytest's own rules):
# Start with capitalized letters.
# If a single phrase, do not end with period. If more than one phrase, all phrases end with periods.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest


class Option(NamedTuple):
    """One option.

    kind is "string", "int", "flag" or "list" (repeatable; a linelist in ini files). cli is False for what only an ini
    key can say, ini False for what a file must not: what is asked for once. Two runs that differ in an option are two
    runs, which nothing mixes, unless free says why it changes neither a verdict nor what is selected; by names the
    field of a run's identity that is compared in the place of the option's text.
    """

    name: str
    help: str
    metavar: str | None = None
    default: str | None = None
    kind: str = "string"
    cli: bool = True
    ini: bool = True
    free: str = ""
    by: str = ""

    @property
    def flag(self) -> str:
        return f"--probe-{self.name}"

    @property
    def key(self) -> str:
        """The ini key, which is the attribute of the parsed options as well."""
        return "probe_" + self.name.replace("-", "_")


OPTIONS = (
    Option(
        "dump",
        "Check the API calls of this dump: a file, a folder of dumps, an archive of one, or a pattern. Repeatable.",
        "PATH",
        kind="list",
        by="dumps",
    ),
    Option(
        "device",
        "Device under test; under -n also several, shared among the workers (default: the accelerator found, else "
        "cpu). recorded: judge the outputs that the dump stored; no device runs",
        "D[,D...]",
        by="devices",
    ),
    Option(
        "dtype",
        "Run in these dtypes: recorded, float64, float32, float16, bfloat16 (default: recorded)",
        "T[,T...]",
        "recorded",
    ),
    Option(
        "inputs",
        "Where inputs come from: auto (stored tensors where the dump has them, else generated), generated, stored "
        "(default: auto)",
        "KIND",
        "auto",
    ),
    Option("data-dir", "Folder of the dump's tensors, if it is not beside the dump; for a run of one dump", "DIR"),
    Option("seed", "Seed of the generated inputs (default: 0)", "N", "0", kind="int"),
    Option(
        "api",
        "Run only what matches by API, call or entry name, for example 'Functional.conv*'. Repeatable.",
        "GLOB",
        kind="list",
    ),
    Option(
        "skip-api", "Leave out the names that match, even if --probe-api names them. Repeatable.", "GLOB", kind="list"
    ),
    Option(
        "unique",
        "Fold records that differ in the values of floating tensors alone into the first of them, with Max and Min as "
        "wide as all of theirs",
        kind="flag",
    ),
    Option("direction", "Run both, forward or backward (default: both)", "DIRECTION", "both"),
    Option(
        "standard",
        "Standard that judges: auto, noise, exact, finite, or one of the tools' listed at the end (default: auto)",
        "NAME",
        "auto",
    ),
    Option(
        "standards-file",
        "YAML file with the project's own rules and limits for some APIs, each with a justification; or msprobe's "
        "config.json with white_list and black_list",
        "FILE",
    ),
    Option(
        "allow",
        "Device modes that may explain an error: tf32, hf32, bf16x3, bf16, ftz, reduced-reduction, truncate, "
        "fast-math, or none (default: auto, the modes that the framework's flags allow)",
        "MODE[,MODE...]",
        "auto",
    ),
    Option(
        "repeat",
        "Run the device N times on the same inputs, and report results that differ (default: 1)",
        "N",
        "1",
        kind="int",
    ),
    Option(
        "flops",
        "Sample products and convolutions whose reference takes more than N float64 operations; inf: never sample "
        "(default: 2e10)",
        "N",
        "2e10",
    ),
    Option(
        "mode",
        "What is found out of each case: acc (is the result right?), time, mem; time without acc makes no reference "
        "(default: acc)",
        "WHAT[,WHAT...]",
        "acc",
    ),
    Option(
        "time-budget",
        "Seconds that the time of each case is measured for; a call that takes longer is timed once (default: 0.05)",
        "S",
        "0.05",
    ),
    Option(
        "time-limit",
        "Fail the cases that take more than so many times the time of --probe-benchmark, or else of --probe-baseline; "
        "1.15 is above the noise",
        "FACTOR",
    ),
    Option(
        "benchmark",
        "Compare the errors of this run, and its times, with those of another run; DIR is that run's --probe-out",
        "DIR",
    ),
    Option(
        "baseline",
        "Fail the cases that got worse than this file says; --probe-baseline-update writes it",
        "FILE",
    ),
    Option(
        "baseline-update",
        "Write what moved into --probe-baseline. With --probe-repeat=N each case runs with N seeds, which tells how "
        "far its metrics spread",
        kind="flag",
        ini=False,
    ),
    Option(
        "gate",
        "What fails beside the baseline: metrics (what got worse), or bits (other bits as well, on the same device) "
        "(default: metrics)",
        "WHAT",
        "metrics",
    ),
    Option(
        "emulate",
        "Compute 16 bit in float32 and round inputs and outputs, on a CPU that has no kernels of it (Paddle's)",
        kind="flag",
    ),
    Option("reference-device", "Device on which the float64 reference runs (default: cpu)", "D", "cpu"),
    Option(
        "fuzz",
        "Search around the records of each API with N drawn calls in the place of its cases; or quick (25, the same "
        "ones each time), thorough (1,000), nightly (10,000). Without a dump: of the APIs of --probe-api",
        "N",
    ),
    Option(
        "fuzz-save",
        "Append each shrunk call that fails under --probe-fuzz to the dump in this folder",
        "DUMP",
        free="it says where findings are kept",
    ),
    Option(
        "strict",
        "Warnings fail, and so do cases of the baseline that have vanished",
        kind="flag",
        free="it says which verdicts fail, and changes none",
    ),
    Option(
        "out",
        "Write results and msprobe's CSV files into this folder; it must not hold results yet",
        "DIR",
        free="it says where results go",
    ),
    Option("markdown", "Write a summary in Markdown into this file", "FILE", free="it writes a report"),
    Option(
        "html",
        "Write a page about the run into this file, to open in a browser: tables, plots, where errors begin",
        "FILE",
        free="it writes a report",
    ),
    Option(
        "history",
        "Append the run to this SQLite file; pytest-probe history shows how a metric moved over runs",
        "FILE",
        free="it writes a report",
    ),
    Option(
        "save",
        "Save inputs, outputs and gradients of both sides into --probe-out, for failing cases or for all",
        "failing|all",
        free="it keeps tensors besides the results",
    ),
    Option(
        "resume",
        "Go on with the run in --probe-out that was killed or interrupted: what has a result does not run again",
        kind="flag",
        ini=False,
        free="it goes on with the same run",
    ),
    Option(
        "shard",
        "Run the I-th of N parts of the cases, which are dealt out by estimated cost, alike on each machine; "
        "pytest-probe merge joins their results",
        "I/N",
        ini=False,
    ),
    Option(
        "cache",
        "Keep the numbers of references that take more than 5 ms in this folder, and take them from there in the next "
        "run, on another device or another build",
        "DIR",
        free="cached numbers are equal, bit for bit",
    ),
    Option(
        "cache-size",
        "How large --probe-cache may grow, as 500MB or 10GB; the least recently used goes first (default: 10GB)",
        "SIZE",
        "10GB",
        free="cached numbers are equal, bit for bit",
    ),
    Option(
        "timeout",
        "End the process in which a case takes longer than S seconds, with all its runs; 0: never (default: 300)",
        "S",
        "300",
        free="a case that ends in time has the same verdict with any limit",
    ),
    Option(
        "isolate",
        "Run cases in a process of their own, which is replaced when it dies; -n does so anyway",
        kind="flag",
        free="each process computes the same",
    ),
    Option(
        "cluster",
        "Run the cases on a Ray cluster, one process a device: ray (the cluster of RAY_ADDRESS, else this machine), or "
        "ray://HOST:PORT",
        "ADDRESS",
        free="each process computes the same",
    ),
    Option(
        "cluster-resource",
        "What Ray calls the devices of --probe-cluster, as NPU (default: GPU where a node has one, else CPU)",
        "NAME",
        free="it says where processes run",
    ),
    Option(
        "cluster-ship",
        "How much may be sent to nodes of --probe-cluster that cannot read a dump's files at the same path "
        "(default: 2GB)",
        "SIZE",
        "2GB",
        free="it says how files travel",
    ),
    Option(
        "capture",
        "Record the API calls of this test run as a dump below this folder; nothing is checked",
        "DIR",
        free="nothing is checked",
    ),
    Option("collect", "Collect the dumps in the folders that pytest collects", kind="flag", cli=False),
    Option(
        "namespaces",
        "Namespaces that a dump may call in addition to the framework's, one on each line: Prefix=python.module",
        kind="list",
        cli=False,
    ),
)

NAMED = {option.name: option for option in OPTIONS}


def standards() -> dict[str, str]:
    """What --probe-standard knows of tools, by name. It imports what judges, so an option's help cannot have it."""
    from pytest_probe.standards.tools import TOOLS
    from pytest_probe.standards.tools.table import RULES

    rules = dict.fromkeys(RULES, "this one rule of msprobe, for every API")
    return {name: tool.release.help for name, tool in TOOLS.items()} | rules


def register(parser: pytest.Parser) -> None:
    """Add all options to pytest's command line and ini keys."""
    group = parser.getgroup("probe", "API precision checks")
    for option in OPTIONS:
        if option.cli:
            _add_option(group, option)
        if option.ini:
            parser.addini(option.key, option.help, type=_ini_type(option), default=None)


def _add_option(group: pytest.OptionGroup, option: Option) -> None:
    if option.kind == "flag":
        group.addoption(option.flag, action="store_true", default=None, dest=option.key, help=option.help)
    else:
        action = "append" if option.kind == "list" else "store"
        group.addoption(option.flag, action=action, metavar=option.metavar, dest=option.key, help=option.help)


def _ini_type(option: Option) -> Any:
    """The ini type by pytest's name; 8.3 knows no integers."""
    import pytest

    if option.kind == "int":
        return "int" if pytest.version_tuple >= (8, 4) else "string"
    return {"flag": "bool", "list": "linelist"}.get(option.kind, "string")
