"""`pytest_probe_results`: what a project's writer gets, and the writers that docs/hooks.md shows."""

from __future__ import annotations

import sys
from collections import Counter
from unittest.mock import MagicMock

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.support.pages import blocks

pytestmark = pytest.mark.slow
COUNTS = """
from pathlib import Path

def pytest_probe_results(results):
    with Path("seen.txt").open("a") as file:
        file.writelines(f"{result.id} {result.verdict}\\n" for result in results)
    raise OSError("disk is full")
"""


def example(words: str) -> str:
    (found,) = [block.text for block in blocks("docs/hooks.md") if block.language == "python" and words in block.text]
    return found


def test_each_result_is_seen_once_and_a_writer_that_raises_fails_the_run(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """Of workers; of one process the examples below see each."""
    make_dump()
    pytester.makeconftest(COUNTS)
    outcome = pytester.runpytest("--probe-dump=dump.json", "-n2", "--probe-out=out")
    seen = (pytester.path / "seen.txt").read_text().splitlines()
    assert len(seen) == len({*seen}) == 6
    verdicts, found = Counter(line.rpartition(" ")[2] for line in seen), outcome.parseoutcomes()
    assert verdicts == {"pass": found["passed"], "skip": found["skipped"]}
    assert outcome.ret == 1
    assert sum("pytest_probe_results raised OSError: disk is full" in line for line in outcome.outlines) == 1
    assert len((pytester.path / "out/results.jsonl").read_text().splitlines()) == 6


def test_the_examples_of_tensorboard_and_of_wandb(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draws noise ratios, the other has a row for each case."""
    make_dump()
    pytester.syspathinsert()
    pytester.makepyfile(drawing=example("SummaryWriter"), logging_wandb=example("wandb"))
    module, wandb = MagicMock(), MagicMock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert pytester.runpytest("--probe-dump=dump.json", "-pdrawing", "-plogging_wandb").ret == 0
    writer = module.SummaryWriter.return_value
    drawn = {call.args[0]: call.args[1:] for call in writer.add_scalar.call_args_list}
    ratio, place = drawn["Functional.linear.forward/output.0"]
    assert 0 <= ratio < 64
    assert isinstance(place, int)
    writer.close.assert_called_once_with()
    (columns,), rows = wandb.Table.call_args
    assert columns == ["case", "device", "verdict", "reason"]
    assert Counter(row[2] for row in rows["data"]) == {"pass": 5, "skip": 1}
    wandb.init.return_value.__enter__.return_value.log.assert_called_once()
