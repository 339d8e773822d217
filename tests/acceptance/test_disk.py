"""A disk that is full or read-only, and a folder that another run writes to: one sentence; what was kept is whole."""

from __future__ import annotations

import json
import os

import pytest

from pytest_probe.features.html.page import Page
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.system.files import try_lock
from tests.acceptance.conftest import DumpMaker, entries, forward, tensor
from tests.support.running import refusal

pytestmark = pytest.mark.usefixtures("forked")
# In a child: no file may become larger than so many bytes.
LIMIT = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""
ARGMAX = entries()["Torch.argmax.0.forward"]
MANY = {f"Torch.argmax.{number}.forward": ARGMAX for number in range(40)}


def limited(pytester: pytest.Pytester, limit: int, *args: str) -> pytest.RunResult:
    """A run whose files stay small."""
    pytester.makeconftest(LIMIT.format(limit=limit))
    result = pytester.runpytest_subprocess(*args)
    for line in (*result.outlines, *result.errlines):
        assert "INTERNALERROR" not in line
        assert "Traceback" not in line
    return result


def test_results_and_tensors_that_the_disk_does_not_take(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    large = tensor(64, 64)
    make_dump(data={"Functional.relu.0.forward": forward(large, output=large), **MANY})
    args = ("--probe-dump=dump.json", "--probe-out=out", "--probe-save=all", "-p", "no:cacheprovider")
    result = limited(pytester, 9_000, *args)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random(
        [
            "probe: *out/results.jsonl cannot be written (File too large): *",
            "probe: *out/saved/dump.json/Functional.relu.0.forward.pt cannot be written (*): the tensors of *",
            "*41 passed*",
        ]
    )
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines(keepends=True)
    assert 3 < len(lines) < 40
    assert all(json.loads(line)["verdict"] == "pass" and line.endswith("\n") for line in lines)
    assert json.loads((pytester.path / "out/run.json").read_text())["exit_status"] == 1
    assert not list((pytester.path / "out").glob(".*"))
    assert not list((pytester.path / "out/saved/dump.json").glob("*relu*.pt"))
    assert not list((pytester.path / "out/saved/dump.json").glob(".*"))


def test_a_cache_that_the_disk_does_not_take(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Newer pytests warn of it themselves, and the run is as good as without a cache; older ones end in a traceback."""
    make_dump(data={f"Torch.argmax.{number}.forward": ARGMAX for number in range(200)})
    result = limited(pytester, 5_000, "--probe-dump=dump.json")
    ours = "cannot be written (File too large)" in result.stdout.str()
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if ours else pytest.ExitCode.OK)
    told = "probe: *.pytest_cache* cannot be written *" if ours else "*could not write path *.pytest_cache*"
    result.stdout.fnmatch_lines([told, "*200 passed*"])


def test_a_capture_that_the_disk_does_not_take(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import torch\ndef test_one():\n    for _ in range(50): torch.ones(2)\ndef test_two(): torch.ones(2)"
    )
    result = limited(pytester, 3_000, "--probe-capture=out", "-p", "no:cacheprovider", "-n1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["probe: *out/step0/* cannot be written (*File too large*", "*2 passed*"])
    for dump in (pytester.path / "out").rglob("dump.json"):
        json.loads(dump.read_text())


def test_files_that_cannot_be_written_at_the_end_fail_the_run(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each but GitHub's own page. Here none is counted, and the run fails for asserts.jsonl, whose plugin does without
    the core."""
    troubles: list[str] = []
    monkeypatch.setattr(Reporting, "trouble", lambda self, line: troubles.append(line.replace(f"{pytester.path}/", "")))
    monkeypatch.setattr(Page, "write", lambda self, path: os.mkdir("out"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "none/page.md")
    make_dump(data={"Torch.argmax.0.forward": ARGMAX})
    one = "    np.testing.assert_allclose(np.ones(2), np.ones(2))"
    pytester.makepyfile(test_mine=f"import numpy as np\ndef test_mine():\n{one}\n")
    pytester.makeconftest(
        """
        import os, pathlib

        def pytest_runtest_logfinish():
            for name in ("summary.md", "asserts.jsonl"):
                os.makedirs(f"out/{name}/full", exist_ok=True)
            pathlib.Path("h.db").write_text("taken by another program " * 100)
        """
    )
    files = ("--probe-out=out", "--probe-html=page.html", "--probe-history=h.db", "--probe-asserts=all")
    result = pytester.runpytest("--probe-dump=dump.json", "test_mine.py", *files)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sorted(troubles) == [
        "the page page.html cannot be written (File exists)",
        "the run was not appended to h.db: file is not a database",
        "the summary summary.md cannot be written (Is a directory)",
    ]
    result.stdout.fnmatch_lines_random(
        [
            "probe: the summary for none/page.md cannot be written (No such file or directory)",
            "probe: *asserts.jsonl cannot be written (*)",
        ]
    )


def test_a_second_run_in_a_folder_in_use_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Torch.argmax.0.forward": ARGMAX})
    file = pytester.mkdir("out") / "results.jsonl"
    args = ("--probe-dump=dump.json", "--probe-out=out")
    with file.open("ab") as held:
        assert try_lock(held)
        refusal(pytester, *args).fnmatch_lines(["--probe-out: '*out' cannot be used; another run writes there; *"])
    # A run locks its results until it ends.
    pytester.makeconftest(
        """
        from pytest_probe.system.files import try_lock

        def pytest_probe_verdict(case, verdict):
            with open("out/results.jsonl", "ab") as file:
                assert not try_lock(file)
        """
    )
    assert pytester.runpytest(*args).ret == 0
    with file.open("ab") as results:
        assert try_lock(results)
