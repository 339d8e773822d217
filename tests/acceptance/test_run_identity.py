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
from pytest_probe.reports.identity import MAY_DIFFER, Use, differences
from tests.acceptance.conftest import DumpMaker

RUN = ("--probe-dump=dump.json", "-p", "no:randomly")
# A value of each option other than its default; None for one that takes none.
OTHER: dict[str, str | None] = {
    "dtype": "bfloat16", "inputs": "generated", "data-dir": "tensors", "seed": "1", "api": "*gelu", "skip-api": "*gelu",
    "unique": None, "direction": "forward", "standard": "exact", "standards-file": "rules.yaml", "allow": "tf32",
    "repeat": "2", "flops": "1e6", "mode": "acc,time", "time-budget": "0.01", "time-limit": "2", "benchmark": "base",
    "baseline": "base.jsonl", "baseline-update": None, "gate": "bits", "emulate": None, "reference-device": "cpu:0",
    "fuzz": "3", "strict": None, "shard": "1/2", "timeout": "7", "collect": None, "namespaces": "Torch=torch",
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
    for use, fields in MAY_DIFFER.items():
        assert all(fields.values()), use
        assert not {name for name in fields if name in NAMED and NAMED[name].free}


@pytest.mark.parametrize("use", ["resume", "merge", "benchmark"])
@pytest.mark.parametrize("name", OTHER)
def test_a_field_that_differs_is_found_unless_it_may(name: str, use: Use) -> None:
    found = list(differences({name: NAMED[name].default}, {name: OTHER[name] or "True"}, use))
    assert bool(found) == (name not in MAY_DIFFER[use])


@pytest.mark.parametrize("name", [name for name, value in OTHER.items() if name not in (
    "data-dir", "standards-file", "benchmark", "baseline", "baseline-update", "gate", "time-limit", "reference-device",
    "emulate", "collect", "namespaces")])  # fmt: skip
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


def _cut(lines: list[str], chance: random.Random) -> list[str]:
    text = "".join(lines)
    return [text[: chance.randrange(1, len(text) - 1)]]


def _doubled(lines: list[str], chance: random.Random) -> list[str]:
    return [*lines, chance.choice(lines)]


def _foreign(lines: list[str], chance: random.Random) -> list[str]:
    result = json.loads(chance.choice(lines))
    return [*lines, json.dumps({**result, "id": "dump.json::Torch.sin.0.forward"}) + "\n"]


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


def test_tables_of_other_runs_stay(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    run = (*RUN, "--probe-device=cpu", "--probe-out=out")
    pytester.runpytest(*run)
    other = pytester.path / "out/earlier/accuracy_checking_result_1.csv"
    other.parent.mkdir()
    other.write_text("of another run")
    own = {path.name for path in (pytester.path / "out").glob("*.csv")}
    file = pytester.path / "out/results.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    pytester.runpytest(*run, "--probe-resume")
    assert other.read_text() == "of another run"
    assert len({path.name for path in (pytester.path / "out").glob("*.csv")}) == len(own) == 2
