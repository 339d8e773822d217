"""The table of explanations, and its copy on the page."""

from __future__ import annotations

import re
from typing import get_args

import numpy as np
import pytest

from benchmarks.explanations import BEGIN, END, PAGE, table, with_table
from pytest_probe.model.comparison import Comparison, RunKind
from pytest_probe.standards.noise import standard
from pytest_probe.standards.noise.explanation import Examined, Explained, Explanation
from pytest_probe.standards.noise.table import EXPLANATIONS
from tests.support.asking import comparison

# Evidence that is no kind of run.
RESULTS = {"cpu_result", "own_result", "kernels_inside", "reference_on_cpu", "chosen_otherwise"}


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "python benchmarks/explanations.py --write"
    assert page.index(BEGIN) < page.index(table()) < page.index(END)


def test_each_row_has_a_name_of_its_own_and_words_for_its_conditions() -> None:
    assert len({row.name for row in EXPLANATIONS}) == len(EXPLANATIONS)
    assert all(condition.__doc__ for row in EXPLANATIONS for condition in row.applies)


def test_rows_name_runs_that_exist() -> None:
    named = {word for row in EXPLANATIONS for word in re.findall(r"\b[a-z0-9]+(?:_[a-z]+)+\b", row.runs)}
    assert named - RESULTS <= set(get_args(RunKind))


def test_the_first_row_that_explains_an_output_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def row(name: str, explains: bool, applies: bool = True) -> Explanation:
        def condition(_: Comparison) -> bool:
            return applies

        def explain(output: Examined) -> Explained | None:
            asked.append(name)
            return Explained(output.judged_by, {"size": 3}) if explains else None

        words = f"{name} of {{size}}: {{trouble}}"
        return Explanation(name, ("above",), (condition,), "none", "none", "warning", words, explain)

    monkeypatch.setattr(standard, "ROUNDING", (row("no", False), row("other device", True, False), row("yes", True)))
    monkeypatch.setattr(standard, "OTHERWISE", (row("too late", True),))
    ruling = standard.ruled(comparison(np.full(20, 1.25), np.ones(20), dtype="float32", api="Torch.sum"))
    assert (ruling.by, ruling.outcome, asked) == ("yes", "warning", ["no", "yes"])
    assert ruling.reason.startswith("yes of 3: noise ratio ")


def test_an_output_that_no_row_explains_is_an_error() -> None:
    ruling = standard.ruled(comparison(np.full(20, 1.25), np.ones(20), dtype="float32", api="Torch.sum"))
    assert (ruling.by, ruling.outcome, ruling.stage.source) == ("", "error", "steps")


def test_the_row_that_grew_the_scale_is_named() -> None:
    runs = {"perturbed": [np.full(20, 1.25), np.full(20, 1.25)]}
    assert (
        standard.ruled(comparison(np.full(20, 1.25), np.ones(20), dtype="float32", api="Torch.sum", runs=runs)).by
        == "float64, K = 1"
    )
