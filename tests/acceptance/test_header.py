"""The header says what a run is under and what decides; the summary keeps to the terminal's width."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, Probed
from tests.support.other_plugins import Ran


@pytest.mark.parametrize(
    ("args", "conditions", "decides"),
    [
        ([], "dtype recorded, inputs auto, seed 0, repeat 1", "standard auto: noise or the API's class decides; *"),
        (
            ["--probe-dtype=recorded,bfloat16", "--probe-repeat=3", "--probe-standard=noise", "--probe-strict"],
            "dtype recorded+bfloat16, inputs auto, seed 0, repeat 3",
            "standard noise: noise decides; warnings fail",
        ),
        (
            ["--probe-standard=exact", "--probe-benchmark=base", "--probe-seed=3"],
            "dtype recorded, *",
            "standard exact: the correctly rounded reference, *; compared with base, where an error is a warning",
        ),
        (
            ["--probe-standard=msprobe-26", "--probe-benchmark=base", "--probe-seed=3"],
            "dtype recorded, *",
            "standard msprobe-26: *msprobe 26*; compared with base",
        ),
        (
            ["--probe-standards-file=rules.yaml"],
            "dtype recorded, *",
            "standard auto: *; with the rules of rules.yaml",
        ),
    ],
)
def test_the_header_states_the_conditions_of_the_run(
    pytester: pytest.Pytester,
    make_dump: DumpMaker,
    healthy_run: Ran,
    args: list[str],
    conditions: str,
    decides: str,
) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text("white_list: [relu]")
    if "--probe-benchmark=base" in args:
        shutil.copytree(healthy_run.folder / "out", "base")
    config = pytester.parseconfigure("--probe-dump=dump.json", *args)
    lines = [line for lines in config.hook.pytest_report_header(config=config, start_path=Path()) for line in lines]
    pytest.LineMatcher(lines).fnmatch_lines([f"probe: *, {conditions}", f"probe: {decides}"], consecutive=True)


def test_the_summary_keeps_to_the_terminals_width(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = """
        from msgspec.structs import replace

        def pytest_probe_verdict(case, verdict):
            return replace(verdict, verdict="warning", reason="many words " * 20)
    """
    monkeypatch.setenv("COLUMNS", "70")
    lines = probed("--probe-api=linear", conftest=conftest).result.outlines
    told = lines[next(at for at, line in enumerate(lines) if line.strip("= ") == "probe") :]
    assert max(map(len, told)) <= 70
    assert max(len(line) for line in told if line.startswith("    many words")) > 59
