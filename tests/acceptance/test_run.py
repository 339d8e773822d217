"""What a run prints and exits with, and how pytest's own options select."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.acceptance.conftest import NAMES, DumpMaker, entries, forward, tensor
from tests.support.other_plugins import Ran
from tests.support.running import collected

pytestmark = pytest.mark.compat


def collect(pytester: pytest.Pytester, *args: str) -> list[str]:
    return [name.partition("::")[2] for name in collected(pytester, *args)]


def test_forward_comes_before_backward_record_by_record(healthy_run: Ran) -> None:
    assert [row["id"] for row in healthy_run.rows] == [f"dump.json::{name}" for name in NAMES]


def test_a_healthy_dump_passes(healthy_run: Ran) -> None:
    result = healthy_run.result
    result.assert_outcomes(passed=5, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["dump.json::Functional.relu.0.forward <- */train.py PASSED*"])


def test_verdicts_become_outcomes(planted_run: Ran) -> None:
    result = planted_run.result
    result.stdout.fnmatch_lines(["dump.json FFw..s*", "*2 failed, 2 passed, 1 skipped, 1 warned*"])
    assert result.ret == 1


@pytest.mark.usefixtures("planted")
def test_strict_fails_warnings(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-strict", "--probe-api=Functional.linear")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["to reproduce: pytest 'dump.json::Functional.linear.0.forward' --probe-strict"])


def test_the_terminal_text_of_a_failing_run_is_as_kept(planted_run: Ran, snapshot: SnapshotAssertion) -> None:
    text = planted_run.result.stdout.str()
    for pattern, replacement in (
        (r"-+ generated xml file: .*\n", ""),
        (re.escape(str(planted_run.folder)), "ROOT"),
        (r"in \d+\.\d+s", "in TIME"),
        (r"(platform|plugins|probe: cpu).*", r"\1 ..."),
        (r"[.\w/]*home/user", "HOME"),
    ):
        text = re.sub(pattern, replacement, text)
    assert text == snapshot


def test_a_failure_has_no_traceback_and_one_line_in_the_short_summary(planted_run: Ran) -> None:
    stdout = planted_run.result.stdout
    stdout.no_fnmatch_line("*items.py*")
    stdout.no_fnmatch_line("*Traceback*")
    stdout.fnmatch_lines(["FAILED dump.json::Functional.relu.0.forward - output.0: noise ratio *"])


def test_a_hook_that_raises_shows_its_own_line_alone(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest("def pytest_probe_verdict(case, verdict): raise RuntimeError('broken')")
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=argmax", "--probe-out=out")
    result.stdout.fnmatch_lines(["pytest_probe_verdict raised RuntimeError: broken", "  *conftest.py:1: def *"])
    assert "pytest_probe_verdict raised RuntimeError: broken" in (pytester.path / "out/results.jsonl").read_text()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-k", "linear"], NAMES[2:4]),
        (["-k", "backward"], [NAMES[1], NAMES[3]]),
        (["-k", "float32 and forward"], [NAMES[0], NAMES[2], NAMES[4]]),
        (["-m", "probe(api='linear')"], NAMES[2:4]),
        (["-m", "probe(api='Functional.linear') and probe(direction='backward')"], [NAMES[3]]),
        (["-m", "probe(api='Torch.relu')"], []),
        (["-m", "probe(namespace='Torch')"], NAMES[4:]),
        (["-m", "probe(direction='backward')"], [NAMES[1], NAMES[3]]),
        (["-m", "probe(dtype='float32', api='relu')"], NAMES[:2]),
        (["--deselect", "dump.json::Functional"], NAMES[4:]),
        (["--probe-api=torch.nn.functional.*"], NAMES[:4]),
        (["--probe-api=Functional.*", "--probe-skip-api=relu"], NAMES[2:4]),
        (["--probe-api=Functional.linear.0.backward"], [NAMES[3]]),
        (["--probe-direction=backward"], [NAMES[1], NAMES[3]]),
        (["--probe-dtype=float32"], NAMES),
        (
            ["--probe-dtype=recorded,bfloat16", "--probe-api=relu", "--probe-api=load"],
            [NAMES[0], NAMES[1], NAMES[0] + "[bfloat16]", NAMES[1] + "[bfloat16]", NAMES[5]],
        ),
    ],
)
def test_options_select_the_collected_items(
    pytester: pytest.Pytester, make_dump: DumpMaker, args: list[str], expected: list[str]
) -> None:
    make_dump()
    assert collect(pytester, "--probe-dump=dump.json", *args) == expected


@pytest.mark.usefixtures("planted")
def test_last_failed_stepwise_and_exitfirst(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.runpytest("--probe-dump=dump.json").assert_outcomes(failed=2, passed=2, skipped=1)
    pytester.runpytest("--probe-dump=dump.json", "--lf").assert_outcomes(failed=2)
    result = pytester.runpytest("--probe-dump=dump.json", "-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 case, 1 error", "5 items did not run"])
    pytester.runpytest("--probe-dump=dump.json", "--sw").assert_outcomes(failed=1)
    pytester.runpytest("--probe-dump=dump.json", "--sw", "--sw-skip").assert_outcomes(failed=2)


def test_durations_of_pytest_list_items(healthy_run: Ran) -> None:
    healthy_run.result.stdout.fnmatch_lines(["*s *dump.json::*"])


def test_quiet_and_no_summary(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    quiet = pytester.runpytest("--probe-dump=dump.json", "-q")
    quiet.stdout.fnmatch_lines(["probe: 6 cases, 5 pass, 1 skip"])
    quiet.stdout.no_fnmatch_line("*worst APIs*")
    for args in (["-qq"], ["--no-summary"]):
        pytester.runpytest("--probe-dump=dump.json", *args).stdout.no_fnmatch_line("*6 cases*")


def test_a_run_without_optional_plugins_of_pytest_writes_results(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    without = [word for name in ("terminal", "cacheprovider", "junitxml", "xdist") for word in ("-p", f"no:{name}")]
    result = pytester.runpytest("--probe-dump=dump.json", *without, "--probe-out=out")
    assert result.ret == 0
    assert len((pytester.path / "out/results.jsonl").read_text().splitlines()) == 6


def test_a_plugin_named_without_autoload_runs_items(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest("-p", "pytest_probe.plugin", "--probe-dump=dump.json")
    result.assert_outcomes(passed=5, skipped=1)


def test_a_marked_item_is_skipped_with_a_result(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            items[0].add_marker(pytest.mark.skip(reason="not today"))
        """
    )
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=relu", "--probe-out=out")
    result.assert_outcomes(passed=1, skipped=1)
    first = json.loads((pytester.path / "out/results.jsonl").read_text().splitlines()[0])
    assert (first["verdict"], first["reason"]) == ("skip", "not today")


def test_reports_skips_at_the_call(healthy_run: Ran) -> None:
    healthy_run.result.stdout.fnmatch_lines(["SKIPPED [[]1[]] dump.json:1: *Torch.load*"])


def test_a_record_without_floats_runs_once(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    index = {**tensor(3, dtype="int64", requires_grad=False), "Max": 5, "Min": 0, "Mean": None, "Norm": None}
    make_dump(data={"Torch.neg.0.forward": forward(index, output=index)})
    assert collect(pytester, "--probe-dump=dump.json", "--probe-dtype=float32,float16") == ["Torch.neg.0.forward"]


@pytest.mark.usefixtures("planted")
def test_reproduces_by_the_printed_command(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    make_dump("cases/my dump.json")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dump.json").write_text((pytester.path / "cases/my dump.json").read_text())
    dumps = [f"--probe-dump={dump}" for dump in ("cases/my dump.json", outside / "dump.json")]
    result = pytester.runpytest(*dumps, "--probe-seed=3", "--probe-dtype=recorded,float16", "-vv")
    commands = re.findall(r"to reproduce: pytest (.*)", result.stdout.str())
    assert len(commands) == 8
    assert all("--probe-seed=3" in command for command in commands)
    assert [str(outside) in command for command in commands] == [False] * 4 + [True] * 4
    for command in (commands[0], commands[-1]):
        pytester.runpytest(*shlex.split(command)).assert_outcomes(failed=1)


def test_two_dumps_of_one_name_have_ids_of_their_own(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for rank in ("rank0", "rank1"):
        make_dump(f"step0/{rank}/dump.json", {"Torch.argmax.0.forward": entries()["Torch.argmax.0.forward"]})
    result = pytester.runpytest("--probe-dump=step0", "--probe-out=out")
    result.assert_outcomes(passed=2)
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [
        "rank0/dump.json::Torch.argmax.0.forward",
        "rank1/dump.json::Torch.argmax.0.forward",
    ]


def test_a_name_that_pytest_would_take_apart_is_reproduced_by_options(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump(data={"Aten.a::b[0].0.forward": forward(tensor(2), output=tensor(2))})
    pytester.makeconftest(
        """
        from msgspec.structs import replace

        def pytest_probe_verdict(case, verdict):
            return replace(verdict, verdict="error", reason="planted")
        """
    )
    result = pytester.runpytest("--probe-dump=dump.json")
    command = f"--probe-dump={shlex.quote(f'{pytester.path}/dump.json')} --probe-api='Aten.a::b[[]0].0.forward'"
    assert f"to reproduce: pytest {command}" in result.outlines
    pytester.runpytest(*shlex.split(command)).assert_outcomes(failed=1)
