"""One run is one run: what differs between two runs is refused, and results are counted."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

import pytest

from pytest_probe.cli import main
from pytest_probe.options import NAMED, OPTIONS
from pytest_probe.reports.results_file import MAY_DIFFER, Use, differences
from tests.acceptance.conftest import DumpMaker, written
from tests.support.other_plugins import Ran
from tests.support.running import ran, refusal

RUN = ("--probe-dump=dump.json", "--probe-seed=3", "-p", "no:randomly")
CPU = (*RUN, "--probe-device=cpu")
# A value of each option other than its default; None for one that takes none.
OTHER: dict[str, str | None] = {
    "dtype": "bfloat16", "inputs": "generated", "data-dir": "tensors", "seed": "1", "api": "*gelu", "skip-api": "*gelu",
    "unique": None, "direction": "forward", "standard": "exact", "standards-file": "rules.yaml", "allow": "tf32",
    "repeat": "2", "flops": "1e6", "mode": "acc,time", "time-budget": "0.01", "time-limit": "2", "benchmark": "base",
    "baseline": "base.jsonl", "baseline-update": None, "emulate": None, "reference-device": "cpu:0",
    "fuzz": "3", "shard": "1/2", "collect": None, "namespaces": "Torch=torch", "outputs": "other",
    "against": "other.json", "against-map": "map.yaml", "against-call": "other.py", "relations": "again",
    "compile": "eager", "framework": "torch", "reference-framework": "torch",
    "against-framework": "torch", "sensitivity": None, "self": "wider-dtype",
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


@pytest.fixture
def finished(pytester: pytest.Pytester, healthy_run: Ran) -> Path:
    """The test's own copy of a dump and a finished run: its results.jsonl."""
    shutil.copytree(healthy_run.folder, pytester.path, dirs_exist_ok=True)
    return pytester.path / "out/results.jsonl"


def run_json(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text()))


def ids(folder: Path) -> list[str]:
    return sorted(json.loads(line)["id"] for line in (folder / "results.jsonl").read_text().splitlines())


def test_each_option_is_compared_or_says_why_not() -> None:
    """An option that is new is compared; this table wants another value of it."""
    compared = {option.name for option in OPTIONS if not option.never_matters_because and not option.by}
    assert compared == OTHER.keys()
    assert {option.name for option in OPTIONS if option.by} == {"dump", "device"}
    assert all(why for uses in MAY_DIFFER.values() for why in uses.values())
    assert not {option.name for option in OPTIONS if option.never_matters_because and option.may_differ}


@pytest.mark.parametrize("use", ["resume", "merge", "benchmark", "baseline"])
@pytest.mark.parametrize("name", OTHER)
def test_a_field_that_differs_is_found_unless_it_may(name: str, use: Use) -> None:
    found = list(differences({name: NAMED[name].default}, {name: OTHER[name] or "True"}, use))
    assert bool(found) == (use not in MAY_DIFFER.get(name, {}))


@pytest.mark.parametrize("name", [name for name, value in OTHER.items() if name not in (
    "data-dir", "standards-file", "benchmark", "baseline", "baseline-update", "time-limit", "reference-device",
    "emulate", "collect", "namespaces", "outputs", "against", "against-map", "against-call",
    "framework", "reference-framework", "against-framework", "self")])  # fmt: skip
def test_a_run_goes_on_with_the_same_options_only(pytester: pytest.Pytester, finished: Path, name: str) -> None:
    before = finished.with_name("run.json").read_bytes()
    value = OTHER[name]
    word = NAMED[name].flag if value is None else f"{NAMED[name].flag}={value}"
    said = refusal(pytester, *CPU, "--probe-out=out", "--probe-resume", word)
    said.fnmatch_lines([f"*its run has {name} *, this run has *; give the same, or a new folder"])
    assert finished.with_name("run.json").read_bytes() == before


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize("words", [["-k", "relu"], ["-m", "slow"], ["--deselect=dump.json::Torch.argmax.0.forward"]])
def test_a_selection_of_pytests_is_compared(pytester: pytest.Pytester, words: list[str]) -> None:
    said = refusal(pytester, *CPU, "--probe-out=out", "--probe-resume", *words)
    said.fnmatch_lines(["*its run has -*, this run has *"])


def test_a_wrong_device_does_not_go_on_with_another_ones_results(pytester: pytest.Pytester, finished: Path) -> None:
    pytester.makeconftest(WRONG_DEVICE)
    before = finished.read_bytes()
    args = (*RUN, "--probe-device=npu", "--probe-out=out", "--probe-resume")
    words = "*its run has *device cpu, this run has npu*"
    refusal(pytester, *args).fnmatch_lines([words])
    result = pytester.runpytest(*args, "-n1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words])
    assert finished.read_bytes() == before


# Options of no effect on a verdict, as they are given to runs that go on.
FREE = (
    ("--probe-timeout=600", "--probe-strict", "--probe-html=page.html", "--probe-history=history.sqlite",
     "--probe-save=all", "--probe-cache=cache,size=1GB", "--probe-asserts=all", "--probe-isolate", "-qq", "--tb=short",
     "-rA", "--junitxml=junit.xml", "--color=yes", "--durations=3", "-x"),
    ("--probe-timeout=0", "-n1", "-v", "--no-summary", "--maxfail=3"),
)  # fmt: skip


@pytest.mark.parametrize("free", FREE, ids=["isolated", "workers"])
def test_a_run_goes_on_with_other_options_of_no_effect(
    pytester: pytest.Pytester, finished: Path, free: tuple[str, ...]
) -> None:
    """Tables of another run stay beside its own. A run that is to say nothing has no summary."""
    every, folder = ids(finished.parent), finished.parent
    others = folder / "earlier/accuracy_checking_result_1.csv", folder / "accuracy_checking_details_1.csv"
    others[0].parent.mkdir()
    for other in others:
        other.write_text("of another run")
    own = {*folder.glob("*.csv")} - {*others}
    finished.write_text("".join(finished.read_text().splitlines(keepends=True)[:-1]))
    result = pytester.runpytest(*CPU, "--probe-out=out", "--probe-resume", *free)
    assert (result.ret, ids(folder)) == (0, every)
    assert {other.read_text() for other in others} == {"of another run"}
    assert len({*folder.glob("*.csv")} - {*others}) == len(own) == 3
    assert "6 cases" not in result.stdout.str()


def test_each_free_option_is_accepted_in_a_test() -> None:
    """But for those without which there is no run to go on with, and for what needs a cluster, a search or worths."""
    words = (word for words in FREE for word in words if word.startswith("--probe-"))
    given = {word.partition("=")[0].removeprefix("--probe-") for word in words}
    assert {option.name for option in OPTIONS if option.never_matters_because} - given == {
        "out", "resume", "cluster", "capture", "listen"
    }  # fmt: skip


def test_warnings_of_a_finished_run_fail_as_the_run_that_goes_on_says(
    pytester: pytest.Pytester, finished: Path
) -> None:
    finished.write_text(finished.read_text().replace('"verdict":"pass"', '"verdict":"warning"', 1))
    for more, status in (("--probe-strict",), 1), ((), 0):
        assert pytester.runpytest(*CPU, "--probe-out=out", "--probe-resume", *more).ret == status
        run = run_json(finished.parent)
        assert (run["exit_status"], run["settings"]["strict"]) == (status, bool(more))


# Another value of an option, and is a benchmark refused; what each use compares is in a test above.
CHANGED = (("device", "npu", False), ("seed", "1", True), ("standard", "exact", False))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of two shards, and the second one with other values of all these options."""
    folder = tmp_path_factory.mktemp("shards")
    written(folder / "dump.json")
    assert ran(folder, *CPU, "--probe-shard=1/2", "--probe-out=one").result.ret == 0
    (folder / "conftest.py").write_text(dedent(WRONG_DEVICE))
    others = [f"--probe-{name}={value}" for name, value, _ in CHANGED]
    ran(folder, *RUN, "--probe-shard=2/2", "--probe-out=two", *others)
    return folder


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize(("name", "value", "refused"), CHANGED)
def test_a_run_with_another_option_is_not_joined_nor_compared(
    pytester: pytest.Pytester, shards: Path, capsys: pytest.CaptureFixture[str], name: str, value: str, refused: bool
) -> None:
    shutil.copytree(shards, pytester.path, dirs_exist_ok=True)
    one, two = (run_json(pytester.path / folder) for folder in ("one", "two"))
    field = "devices" if name == "device" else name
    two["identity"] = one["identity"] | {field: two["identity"][field]}
    Path("two/run.json").write_text(json.dumps(two))
    assert main(["merge", "one", "two", "-o", "merged"]) == 2
    field = "torch device" if name == "device" else name
    assert f"'two' cannot be used; its run has {field} " in capsys.readouterr().err
    assert not Path("merged").exists()
    args = (*CPU, "--probe-benchmark=out", f"--probe-{name}={value}")
    if refused:
        refusal(pytester, *args).fnmatch_lines([f"*--probe-benchmark: *its run has {name} *, this run has *"])
    else:
        pytester.parseconfigure(*args)


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
    run = (*CPU, "--probe-out=out", "--probe-shard=1/1")
    status = pytester.runpytest(*run).ret
    file = pytester.path / "out/results.jsonl"
    every, lines = ids(file.parent), file.read_text().splitlines(keepends=True)
    for damage, seed in DAMAGE:
        file.write_text("".join(damage(lines, random.Random(seed))))
        for command in (["merge", "out", "-o", "merged"], ["compare", "out", "out", "-o", "compared"],
                        ["report", "out", "-o", "page.html"]):  # fmt: skip
            assert main(command) == 2, (damage, seed, command)
            assert "dump.json::" in capsys.readouterr().err
    chance = random.Random(0)
    file.write_text("".join(_foreign(_doubled(lines[:-1], chance), chance)) + lines[-1][:40])
    result = pytester.runpytest(*run, "--probe-resume")
    assert (result.ret, ids(file.parent)) == (status, every)


def test_a_run_that_ended_early_is_named(
    pytester: pytest.Pytester, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted after two of five cases, or killed with them, which no run.json can say."""
    pytester.makeconftest(STOPS)
    pytester.runpytest(*CPU, "--probe-out=early", "--probe-shard=1/1", "--stop")
    count = len(ids(finished.parent))
    told = f"its run ended early: {count - 2} of {count} cases are missing"
    interrupted = run_json(Path("early"))
    for name, state in {"stopped": interrupted, "killed": {**interrupted, "finished": None, "not_run": None}}.items():
        Path("early/run.json").write_text(json.dumps(state))
        capsys.readouterr()
        assert main(["report", "early", "-o", "page.html"]) == 0
        assert f"warning: early: {told}" in capsys.readouterr().out
        main(["compare", "out", "early", "-o", f"compared-{name}"])
        assert f"warning: early: {told}" in capsys.readouterr().out
        assert main(["merge", "early", "-o", "merged"]) == 2
        said = refusal(pytester, *CPU, "--probe-benchmark=early")
        said.fnmatch_lines([f"*--probe-benchmark: *early' cannot be used; {told}; go on with *"])
