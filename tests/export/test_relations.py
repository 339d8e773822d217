"""What a run says of relations, number by number."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_probe.export.relations import Report
from pytest_probe.model.result import OutputResult, Result
from pytest_probe.model.verdict import Outcome


def result(api: str, dtype: str, direction: str = "forward", **relations: Outcome) -> Result:
    outputs = [OutputResult("output.0", (2,), dtype, "pass", "noise", "", {}, ())]
    outputs += [
        OutputResult(f"relation.{name}", (2,), dtype, outcome, "relations", "", {}, ())
        for name, outcome in relations.items()
    ]
    id = f"dump.json::{api}.0.{direction}"
    return Result(id, api, direction, dtype, "cpu", "pass", "auto", "", "", 0.0, tuple(outputs), ())


def report() -> Report:
    made = Report()
    for each in (
        result("Functional.linear", "float32", batch="warning", guard="pass"),
        result("Functional.linear", "float32", "backward", batch="pass", guard="pass"),
        result("Functional.linear", "bfloat16", batch="pass", guard="skip"),
        result("Functional.relu", "float32", guard="pass"),
    ):
        made.add(each)
    return made


def test_lines() -> None:
    assert list(report().lines(80)) == [
        "relations: 5 hold, 1 broken, 1 not checked",
        "batch: holds in 2 of 3 cases",
        "  Functional.linear bfloat16 1 of 1, Functional.linear float32 1 of 2",
        "guard: holds in 3 cases (1 not checked)",
    ]


def test_without_relations_nothing_is_said() -> None:
    made = Report()
    made.add(result("Functional.relu", "float32"))
    assert (list(made.lines(80)), made.rows()) == ([], [])


def test_the_file(tmp_path: Path) -> None:
    content = json.loads(report().write(tmp_path / "relations.json").read_text())
    assert content["schema"] == 1
    assert content["relations"][1] == {
        "relation": "batch", "api": "Functional.linear", "dtype": "float32", "direction": "backward",
        "holds": 1, "broken": 0, "unasked": 0,
    }  # fmt: skip
    assert len(content["relations"]) == 7
