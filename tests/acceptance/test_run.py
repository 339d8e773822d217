"""What a run prints and exits with, and how pytest's own options select."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_probe.frameworks import signatures
from tests.acceptance.conftest import NAMES, PLANTED, DumpMaker, Probed, entries, forward, tensor
from tests.support.other_plugins import Ran
from tests.support.running import collected

pytestmark = pytest.mark.compat


def collect(pytester: pytest.Pytester, *args: str) -> list[str]:
    return [name.partition("::")[2] for name in collected(pytester, *args)]


def test_a_healthy_dump_passes(healthy_run: Ran) -> None:
    result = healthy_run.result
    result.assert_outcomes(passed=5, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "dump.json::Functional.relu.0.forward <- */train.py PASSED*",
            "*s *dump.json::*",  # of --durations
            "SKIPPED [[]1[]] dump.json:1: *Torch.load*",
        ]
    )
    result.stdout.no_fnmatch_line("*this process has set*")
    assert "state" not in healthy_run.run["devices"][0]
    # Forward comes before backward, record by record.
    assert [row["id"] for row in healthy_run.rows] == [f"dump.json::{name}" for name in NAMES]


def test_the_terminal_text_of_a_failing_run_is_as_kept(planted_run: Ran, snapshot: SnapshotAssertion) -> None:
    assert planted_run.result.ret == 1
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
        (["--probe-api=Functional.linear.0", "--probe-api=functional.relu"], NAMES[2:4]),
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


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("torch.Tensor.add_", "Tensor.add_"),
        ("torch.linalg.norm", "Torch.linalg.norm"),
        ("torch_npu.npu_rms_norm", "NPU.npu_rms_norm"),
    ],
)
def test_a_pattern_matches_other_spellings_of_an_api(glob: str, expected: str) -> None:
    assert signatures().spelled(glob) == expected


@pytest.mark.usefixtures("planted")
def test_stepwise_goes_on(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.runpytest("--probe-dump=dump.json", "--sw", "--sw-skip").assert_outcomes(failed=2)


def test_a_run_without_optional_plugins_of_pytest_writes_results(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without autoload, where the plugin is named."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    without = [word for name in ("terminal", "cacheprovider", "junitxml", "xdist") for word in ("-p", f"no:{name}")]
    found = probed("-p", "pytest_probe.plugin", *without)
    assert (found.result.ret, len(found.rows)) == (0, 6)


def test_a_record_without_floats_runs_once(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    index = {**tensor(3, dtype="int64", requires_grad=False), "Max": 5, "Min": 0, "Mean": None, "Norm": None}
    make_dump(data={"Torch.neg.0.forward": forward(index, output=index)})
    assert collect(pytester, "--probe-dump=dump.json", "--probe-dtype=float32,float16") == ["Torch.neg.0.forward"]


def test_reproduces_by_the_printed_command(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    """Of a name that pytest would take apart by options."""
    pytester.makeconftest(
        PLANTED + "        if case.record.api == 'a::b[0]':\n            return replace(verdict, verdict='error')\n"
    )
    data = entries() | {"Aten.a::b[0].0.forward": forward(tensor(2), output=tensor(2))}
    make_dump("cases/my dump.json", data)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dump.json").write_text((pytester.path / "cases/my dump.json").read_text())
    dumps = [f"--probe-dump={dump}" for dump in ("cases/my dump.json", outside / "dump.json")]
    result = pytester.runpytest(*dumps, "--probe-seed=3", "--probe-dtype=recorded,float16", "-vv")
    commands = re.findall(r"to reproduce: pytest (.*)", result.stdout.str())
    assert all("--probe-seed=3" in command for command in commands)
    ids = [command for command in commands if "Aten" not in command]
    assert [str(outside) in command for command in ids] == [False] * 4 + [True] * 4
    by_options = next(command for command in commands if "Aten" in command)
    dump = f"{pytester.path}/cases/my dump.json"
    assert by_options.startswith(f"--probe-dump={shlex.quote(dump)} --probe-api='Aten.a::b[[]0].0.forward'")
    # That what is selected fails again: tests/features/test_contract.py.
    for command, name in (
        (ids[0], NAMES[0]),
        (ids[-1], NAMES[1] + "[float16]"),
        (by_options, "Aten.a::b[0].0.forward"),
    ):
        assert collect(pytester, *shlex.split(command)) == [name]
