"""--probe-shard and `pytest-probe merge`: four machines find what one finds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.cli import main
from pytest_probe.features.shard import names, run_of
from tests.acceptance.conftest import PLANTED, DumpMaker, backward, entries, forward, tensor, written
from tests.support.dumps import unpack
from tests.support.other_plugins import Ran
from tests.support.running import collected, ran, rows

RUN = ("--probe-dump=dump.json", "--probe-device=cpu", "-p", "no:randomly")


def merge(folders: list[Path], *args: str) -> int:
    return main(["merge", *map(str, folders), "-o", str(folders[0].with_name("merged")), *args])


def test_parts_are_disjoint_and_a_backward_lies_with_its_forward(pytester: pytest.Pytester) -> None:
    dump = f"--probe-dump={unpack('msprobe-26.2.0/cnn', pytester.path)}"
    whole = collected(pytester, dump)
    parts = [collected(pytester, dump, f"--probe-shard={place}/4") for place in range(1, 5)]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    assert all(parts)
    for part in parts:
        others = {name for name in whole if name not in part}
        assert not {name for name in others if name.replace(".forward", ".backward") in part}


def test_merge_says_which_tables_of_two_dumps_it_does_not_write(
    pytester: pytest.Pytester, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dump()
    make_dump("other/dump.json")
    paths = "--probe-dump=dump.json", "--probe-against=other/dump.json"
    pytester.runpytest(*paths, "--probe-shard=1/1", "--probe-out=shard1")
    assert [*(pytester.path / "shard1").glob("compare_result_*.csv")]
    capsys.readouterr()
    merge([pytester.path / "shard1"])
    assert "compare_result_*.csv are not written: " in capsys.readouterr().out


def test_another_order_deals_alike(pytester: pytest.Pytester, folders: list[Path]) -> None:
    dealt = collected(pytester, "--probe-dump=dump.json", "--probe-shard=1/3", "-p", "randomly")
    assert sorted(dealt) == sorted(result["id"] for result in rows(folders[0]))


def test_failing_cases_skips_and_tests_of_the_user(
    pytester: pytest.Pytester, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dump()
    pytester.makeconftest(PLANTED)
    pytester.makepyfile(
        test_own="""
        import torch

        def test_exp(probe):
            probe.check(torch.exp, reference=torch.exp, inputs=[probe.tensor((4,))], backward=True)
        """
    )
    pytester.runpytest(*RUN, "test_own.py", "--probe-shard=1/1", "--probe-out=shard1")
    capsys.readouterr()
    assert merge([pytester.path / "shard1"], f"--junit={pytester.path / 'merged.xml'}") == 1
    told = capsys.readouterr().out
    assert "\n1 error: noise ratio 512 (limit 64), Functional.relu, at train.py:12 (record\n" in told
    assert "8 cases, 4 pass, 1 warning, 2 error, 1 skip" in told
    text = (pytester.path / "merged.xml").read_text()
    assert text.count('classname="test_own" name="test_exp"') == 1
    for words in ('errors="0" failures="2" skipped="1" tests="7"', 'message="output.0: noise ratio 512 (limit 64)'):
        assert words in text


def test_more_shards_than_cases_is_no_failure(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Functional.relu.0.forward": entries()["Functional.relu.0.forward"]})
    for args in ([], ["-n1"]):
        empty = pytester.runpytest(*RUN, "--probe-shard=2/2", *args)
        assert empty.ret == pytest.ExitCode.OK
    # What no shard has is a mistake.
    assert pytester.runpytest(*RUN, "--probe-shard=1/2", "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump and the results of its three shards."""
    folder = tmp_path_factory.mktemp("three")
    written(folder / "dump.json")
    for place in (1, 2, 3):
        assert ran(folder, *RUN, f"--probe-shard={place}/3", f"--probe-out=shard{place}").result.ret == 0
    return folder


@pytest.fixture
def folders(pytester: pytest.Pytester, three: Path) -> list[Path]:
    """The test's own copies of the results."""
    shutil.copytree(three, pytester.path, dirs_exist_ok=True)
    return [pytester.path / f"shard{place}" for place in (1, 2, 3)]


def test_shards_of_other_runs(
    pytester: pytest.Pytester, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another option: tests/acceptance/test_run_identity.py."""
    run = json.loads((folders[1] / "run.json").read_text())
    (folders[1] / "run.json").write_text(json.dumps({**run, "identity": {**run["identity"], "seed": 7}}))
    assert merge(folders) == 2
    assert f"'{folders[1]}' cannot be used; its run has seed 7, that of {folders[0]} has 0" in capsys.readouterr().err
    run["identity"]["dumps"]["dump.json"] = "sha256:0"
    (folders[1] / "run.json").write_text(json.dumps(run))
    assert merge(folders) == 2
    assert "its run has dumps dump.json sha256:0, that of" in capsys.readouterr().err
    assert not (pytester.path / "merged").exists()


def test_shards_that_are_missing_or_overlap(
    pytester: pytest.Pytester, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(folders[1:2]) == 2
    assert "shards are missing: 1/3, 3/3; add them, or --partial" in capsys.readouterr().err
    assert merge([*folders, folders[1]]) == 2
    assert f"it is shard 2/3, and so is {folders[1]}; give each shard once" in capsys.readouterr().err
    stolen = (folders[0] / "results.jsonl").read_text().splitlines(keepends=True)[0]
    with (folders[1] / "results.jsonl").open("a") as file:
        file.write(stolen)
    assert merge(folders) == 2
    assert f"it has 1 case that its run did not select: {json.loads(stolen)['id']}" in capsys.readouterr().err
    assert merge([folders[0], folders[2]], "--partial") in (0, 1)
    assert len(rows("merged")) == len(rows(folders[0])) + len(rows(folders[2]))


@pytest.mark.parametrize("shard", ["x/y", "1/300000000", "3/2", "", "\u0661/2"])
def test_a_shard_that_run_json_names_wrongly_is_refused(
    folders: list[Path], capsys: pytest.CaptureFixture[str], shard: str
) -> None:
    run = json.loads((folders[1] / "run.json").read_text())
    run["settings"]["shard"] = shard
    (folders[1] / "run.json").write_text(json.dumps(run))
    assert merge(folders) == 2
    assert f"run.json: settings.shard is {shard!r}; expected I/N" in capsys.readouterr().err


def test_merge_refuses_folders_that_are_no_shards(
    pytester: pytest.Pytester, folders: list[Path], planted_run: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(planted_run.folder / "out", "whole")
    for given, told in (
        ([pytester.path / "whole"], "its run had no --probe-shard, so there is nothing to join"),
        ([pytester.path / "nowhere"], "give folders of --probe-out; run.json: "),
    ):
        assert main(["merge", *map(str, given), "-o", str(pytester.path / "merged")]) == 2
        assert told in capsys.readouterr().err
    run = json.loads((folders[1] / "run.json").read_text())
    (folders[1] / "run.json").write_text(json.dumps({**run, "not_run": 1}))
    assert merge(folders) == 2
    told = "its run ended early: 1 of 2 cases are missing; go on with --probe-resume, or add --partial"
    assert told in capsys.readouterr().err
    (folders[1] / "run.json").write_text(json.dumps(run))
    assert main(["merge", *map(str, folders), "-o", str(pytester.path / "whole")]) == 2
    assert "it holds results.jsonl of another run; give a new folder" in capsys.readouterr().err


def test_costly_cases_start_first_under_n_alone(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    small, large = tensor(2, 3), tensor(512, 512)
    make_dump(
        data={
            "Functional.relu.0.forward": forward(small, output=small),
            "Functional.linear.0.forward": forward(large, large, output=large),
            "Functional.linear.0.backward": backward(large, large, large),
            "Functional.gelu.0.forward": forward(large, output=large),
        }
    )
    order = ["Functional.linear.0.forward", "Functional.linear.0.backward", "Functional.gelu.0.forward"]
    for dist in ("load", "worksteal"):
        run = pytester.runpytest(*RUN, "-n1", f"--dist={dist}", f"--probe-out={dist}")
        run.assert_outcomes(passed=4)
        names = [result["id"].partition("::")[2] for result in rows(dist)]
        assert names == [*order, "Functional.relu.0.forward"]
    serial = [name.partition("::")[2] for name in collected(pytester, *RUN)]
    assert serial == ["Functional.relu.0.forward", *order]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("dump.json::Torch.add.0.forward", ("dump.json", "Torch.add.0.forward")),
        ("runs/a/dump.json::Torch.add.0.forward[float16]", ("runs.a.dump.json", "Torch.add.0.forward[float16]")),
        ("tests/test_own.py::Group::test_gelu[a::b/c]", ("tests.test_own.Group", "test_gelu[a::b/c]")),
        ("run.zip::step0/dump.json::Torch.add.0.forward", ("run.zip.step0/dump.json", "Torch.add.0.forward")),
    ],
)
def test_names_are_pytests(node: str, expected: tuple[str, str]) -> None:
    assert names(node) == expected


@pytest.mark.parametrize(("statuses", "merged"), [([5, 5], 5), ([5, 0], 0), ([5, 1], 1), ([None, 5], 5), ([None], 0)])
def test_shards_of_which_none_had_an_item_are_no_success(statuses: list[int | None], merged: int) -> None:
    facts: dict[str, Any] = {"devices": [], "without_result": [], "settings": {}, "identity": {}}
    facts |= {"started": "", "not_run": 0}
    shards: Any = [
        SimpleNamespace(run=SimpleNamespace(exit_status=status, finished="", **facts), whole={}, name=str(place))
        for place, status in enumerate(statuses)
    ]
    assert run_of(shards, [])["exit_status"] == merged
