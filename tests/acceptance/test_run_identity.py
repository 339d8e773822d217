"""One run is one run: what differs between two runs is refused, and results are counted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pytest_probe.cli import main
from pytest_probe.options import NAMED, OPTIONS
from pytest_probe.reports.results_file import MAY_DIFFER, Use, differences
from tests.acceptance.conftest import DumpMaker

RUN = ("--probe-dump=dump.json", "-p", "no:randomly")
# A value of each option other than its default; None for one that takes none.
OTHER: dict[str, str | None] = {
    "dtype": "bfloat16", "inputs": "generated", "data-dir": "tensors", "seed": "1", "api": "*gelu", "skip-api": "*gelu",
    "unique": None, "direction": "forward", "standard": "exact", "standards-file": "rules.yaml", "allow": "tf32",
    "repeat": "2", "flops": "1e6", "mode": "acc,time", "time-budget": "0.01", "time-limit": "2", "benchmark": "base",
    "baseline": "base.jsonl", "baseline-update": None, "emulate": None, "reference-device": "cpu:0",
    "fuzz": "3", "shard": "1/2", "collect": None, "namespaces": "Torch=torch", "outputs": "other",
    "against": "other.json", "against-map": "map.yaml", "against-call": "other.py", "relations": "again",
    "compile": "eager", "framework": "torch", "reference-framework": "torch",
    "against-framework": "torch", "worth": None, "self": "wider",
    "ranks": "2",
}  # fmt: skip
# A device that is wrong in every call, of a kind that the user registered.
WRONG_DEVICE = """
    class Device:
        def __init__(self, name):
            self.name = name
        def put(self, tensor):
            return tensor
        def get(self, tensor):
            return tensor
        def call(self, function, args, kwargs):
            found = function(*args, **kwargs)
            return found + 1

    def pytest_probe_register(registry):
        registry.devices["npu"] = Device
"""


def run_json(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text()))


def ids(folder: Path) -> list[str]:
    return sorted(json.loads(line)["id"] for line in (folder / "results.jsonl").read_text().splitlines())


def test_each_option_is_compared_or_says_why_not() -> None:
    """An option that is new is compared; this table wants another value of it."""
    compared = {option.name for option in OPTIONS if not option.free and not option.by}
    assert compared == OTHER.keys()
    assert {option.name for option in OPTIONS if option.by} == {"dump", "device"}
    assert all(why for uses in MAY_DIFFER.values() for why in uses.values())
    assert not {option.name for option in OPTIONS if option.free and option.may_differ}


@pytest.mark.parametrize("use", ["resume", "merge", "benchmark", "baseline"])
@pytest.mark.parametrize("name", OTHER)
def test_a_field_that_differs_is_found_unless_it_may(name: str, use: Use) -> None:
    found = list(differences({name: NAMED[name].default}, {name: OTHER[name] or "True"}, use))
    assert bool(found) == (use not in MAY_DIFFER.get(name, {}))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name, value in OTHER.items() if name not in (
    "data-dir", "standards-file", "benchmark", "baseline", "baseline-update", "time-limit", "reference-device",
    "emulate", "collect", "namespaces", "outputs", "against", "against-map", "against-call",
    "framework", "reference-framework", "against-framework", "self")])  # fmt: skip
def test_a_run_goes_on_with_the_same_options_only(pytester: pytest.Pytester, make_dump: DumpMaker, name: str) -> None:
    make_dump()
    pytester.runpytest(*RUN, "--probe-device=cpu", "--probe-out=out")
    before = (pytester.path / "out/run.json").read_bytes()
    value = OTHER[name]
    word = NAMED[name].flag if value is None else f"{NAMED[name].flag}={value}"
    result = pytester.runpytest(*RUN, "--probe-device=cpu", "--probe-out=out", "--probe-resume", word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*its run has {name} *, this run has *; give the same, or a new folder"])
    assert (pytester.path / "out/run.json").read_bytes() == before


@pytest.mark.parametrize("words", [["-k", "relu"], ["-m", "slow"], ["--deselect=dump.json::Torch.argmax.0.forward"]])
def test_a_selection_of_pytests_is_compared(pytester: pytest.Pytester, make_dump: DumpMaker, words: list[str]) -> None:
    make_dump()
    pytester.runpytest(*RUN, "--probe-device=cpu", "--probe-out=out")
    result = pytester.runpytest(*RUN, "--probe-device=cpu", "--probe-out=out", "--probe-resume", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*its run has -*, this run has *"])


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_wrong_device_does_not_go_on_with_another_ones_results(
    pytester: pytest.Pytester, make_dump: DumpMaker, workers: list[str]
) -> None:
    make_dump()
    pytester.makeconftest(WRONG_DEVICE)
    pytester.runpytest(*RUN, "--probe-device=cpu", "--probe-out=out")
    before = (pytester.path / "out/results.jsonl").read_bytes()
    result = pytester.runpytest(*RUN, "--probe-device=npu", "--probe-out=out", "--probe-resume", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*its run has *device cpu, this run has npu*"])
    assert (pytester.path / "out/results.jsonl").read_bytes() == before


def test_shards_of_two_devices_are_not_joined(
    pytester: pytest.Pytester, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dump()
    pytester.makeconftest(WRONG_DEVICE)
    for place, device in enumerate(("cpu", "npu"), 1):
        pytester.runpytest(*RUN, f"--probe-device={device}", f"--probe-shard={place}/2", f"--probe-out=shard{place}")
    folders = [str(pytester.path / f"shard{place}") for place in (1, 2)]
    assert main(["merge", *folders, "-o", str(pytester.path / "merged")]) == 2
    assert "its run has torch device npu, that of" in capsys.readouterr().err


# Options of no effect on a verdict, as they are given to a run that goes on.
FREE = (
    "--probe-timeout=7", "--probe-timeout=0", "--probe-strict", "--probe-html=page.html",
    "--probe-history=history.sqlite", "--probe-save=all", "--probe-cache=cache,size=1GB",
    "--probe-isolate", "--probe-asserts=all", "-n1", "-v", "-q", "--tb=short", "-rA",
    "--junitxml=junit.xml", "--color=yes", "--durations=3", "-x", "--maxfail=3",
)  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("free", FREE)
def test_a_run_goes_on_with_another_option_of_no_effect(
    pytester: pytest.Pytester, make_dump: DumpMaker, free: str
) -> None:
    make_dump()
    run = (*RUN, "--probe-device=cpu", "--probe-out=out")
    assert pytester.runpytest(*run).ret == 0
    file = pytester.path / "out/results.jsonl"
    whole = ids(file.parent)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    result = pytester.runpytest(*run, "--probe-resume", free)
    assert (result.ret, ids(file.parent)) == (0, whole)


def test_each_free_option_is_accepted_in_a_test() -> None:
    """But for those without which there is no run to go on with, and for what needs a cluster, a search or worths."""
    given = {word.partition("=")[0].removeprefix("--probe-") for word in FREE if word.startswith("--probe-")}
    assert {option.name for option in OPTIONS if option.free} - given == {
        "out", "resume", "cluster", "capture", "listen"
    }  # fmt: skip


# A case with a warning.
WARNS = """
    from msgspec.structs import replace

    def pytest_probe_verdict(case, verdict):
        if case.record.api == "relu":
            return replace(verdict, verdict="warning", reason="known")
"""


@pytest.mark.parametrize(("first", "then"), [((), ("--probe-strict",)), (("--probe-strict",), ())])
def test_warnings_of_a_finished_run_fail_as_the_run_that_goes_on_says(
    pytester: pytest.Pytester, make_dump: DumpMaker, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    make_dump()
    run = (*RUN, "--probe-device=cpu")
    pytester.makeconftest(WARNS)
    assert pytester.runpytest(*run, "--probe-out=out", *first).ret == bool(first)
    assert pytester.runpytest(*run, "--probe-out=out", "--probe-resume", *then).ret == bool(then)
    assert run_json(pytester.path / "out")["exit_status"] == bool(then)
    assert run_json(pytester.path / "out")["settings"]["strict"] == bool(then)


# Another value of an option, and the uses that refuse it; a benchmark may be of another standard, modes or repeats.
BOTH, MERGE = ("merge", "benchmark"), ("merge",)
CHANGED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("device", "npu", MERGE), ("seed", "1", BOTH), ("api", "*relu", MERGE), ("standard", "exact", MERGE),
    ("allow", "tf32", MERGE), ("repeat", "2", MERGE), ("flops", "1e6", BOTH), ("dtype", "bfloat16", MERGE),
    ("inputs", "generated", BOTH), ("direction", "forward", MERGE),
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "value", "uses"), CHANGED, ids=[name for name, _, _ in CHANGED])
def test_a_run_with_another_option_is_not_joined_nor_compared(
    pytester: pytest.Pytester,
    make_dump: DumpMaker,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    uses: tuple[str, ...],
) -> None:
    make_dump()
    pytester.makeconftest(WRONG_DEVICE)
    run = (*RUN, "--probe-dtype=recorded", "--probe-device=cpu")
    other = f"--probe-{name}={value}"
    pytester.runpytest(*run, "--probe-shard=1/2", "--probe-out=one")
    pytester.runpytest(*run, "--probe-shard=2/2", "--probe-out=two", other)
    assert run_json(Path("two"))["settings"] != run_json(Path("one"))["settings"]
    capsys.readouterr()
    assert main(["merge", "one", "two", "-o", "merged"]) == 2
    field = "torch device" if name == "device" else name
    assert f"'two' cannot be used; its run has {field} " in capsys.readouterr().err
    assert not Path("merged").exists()
    pytester.runpytest(*run, "--probe-out=whole")
    result = pytester.runpytest(*run, "--probe-benchmark=whole", other)
    assert (result.ret == pytest.ExitCode.USAGE_ERROR) == ("benchmark" in uses)
    if "benchmark" in uses:
        result.stderr.fnmatch_lines([f"*--probe-benchmark: *its run has {name} *, this run has *"])


def _cut(lines: list[str], chance: random.Random) -> list[str]:
    text = "".join(lines)
    return [text[: chance.randrange(1, len(text) - 1)]]


def _doubled(lines: list[str], chance: random.Random) -> list[str]:
    return [*lines, chance.choice(lines)]


def _foreign(lines: list[str], chance: random.Random) -> list[str]:
    result = json.loads(chance.choice(lines))
    return [*lines, json.dumps({**result, "id": "dump.json::Torch.sin.0.forward"}) + "\n"]


# Ends the run after two items.
STOPS = """
    def pytest_addoption(parser):
        parser.addoption("--stop", action="store_true")

    def pytest_runtest_logfinish(nodeid, location):
        STOPS.session.done = getattr(STOPS.session, "done", 0) + 1
        if STOPS.session.done == 2 and STOPS.session.config.option.stop:
            STOPS.session.shouldstop = "two are enough"

    class STOPS:
        session = None

    def pytest_sessionstart(session):
        STOPS.session = session
"""
Damage: TypeAlias = "Callable[[list[str], random.Random], list[str]]"
KINDS: tuple[Damage, ...] = (_cut, _doubled, _foreign)
DAMAGE = [(damage, seed) for damage in KINDS for seed in range(10)]


@pytest.mark.usefixtures("planted")
def test_damaged_results_are_refused_and_run_again(
    pytester: pytest.Pytester, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 cuts, doubled lines and foreign lines: nothing is lost, and nothing passes for whole."""
    make_dump()
    run = (*RUN, "--probe-device=cpu", "--probe-out=out", "--probe-shard=1/1")
    status = pytester.runpytest(*run).ret
    file = pytester.path / "out/results.jsonl"
    whole, lines = ids(file.parent), file.read_text().splitlines(keepends=True)
    for damage, seed in DAMAGE:
        file.write_text("".join(damage(lines, random.Random(seed))))
        for command in (["merge", "out", "-o", "merged"], ["compare", "out", "out", "-o", "compared"],
                        ["report", "out", "-o", "page.html"]):  # fmt: skip
            assert main(command) == 2, (damage, seed, command)
            assert "dump.json::" in capsys.readouterr().err
        result = pytester.runpytest(*run, "--probe-resume")
        assert (result.ret, ids(file.parent)) == (status, whole), (damage, seed)
        file.write_text("".join(lines))


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_ended_early_is_named(
    pytester: pytest.Pytester, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str], *, killed: bool
) -> None:
    """interrupted after two of five cases, or killed with them, which no run.json can say."""
    make_dump()
    pytester.makeconftest(STOPS)
    run = (*RUN, "--probe-device=cpu")
    for folder, words in (("whole", ()), ("early", ("--probe-shard=1/1", "--stop"))):
        pytester.runpytest(*run, f"--probe-out={folder}", *words)
    if killed:
        known = run_json(Path("early"))
        Path("early/run.json").write_text(json.dumps({**known, "finished": None, "not_run": None}))
    count = len(ids(Path("whole")))
    told = f"its run ended early: {count - 2} of {count} cases are missing"
    capsys.readouterr()
    assert main(["report", "early", "-o", "page.html"]) == 0
    assert f"warning: early: {told}" in capsys.readouterr().out
    main(["compare", "whole", "early", "-o", "compared"])
    assert f"warning: early: {told}" in capsys.readouterr().out
    assert main(["merge", "early", "-o", "merged"]) == 2
    refused = pytester.runpytest(*run, "--probe-benchmark=early")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"*--probe-benchmark: *early' cannot be used; {told}; go on with *"])


def test_tables_of_other_runs_stay(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    run = (*RUN, "--probe-device=cpu", "--probe-out=out")
    pytester.runpytest(*run)
    other = pytester.path / "out/earlier/accuracy_checking_result_1.csv"
    other.parent.mkdir()
    other.write_text("of another run")
    beside = pytester.path / "out/accuracy_checking_details_1.csv"
    beside.write_text("of another run")
    own = {path.name for path in (pytester.path / "out").glob("*.csv")} - {beside.name}
    file = pytester.path / "out/results.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    pytester.runpytest(*run, "--probe-resume")
    assert {other.read_text(), beside.read_text()} == {"of another run"}
    assert len({path.name for path in (pytester.path / "out").glob("*.csv")} - {beside.name}) == len(own) == 3
