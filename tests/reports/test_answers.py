"""What answers add up to, number by number."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import Answer
from pytest_probe.reports.answers import Answers, Row


def result(number: int, *answers: Answer, api: str = "F.linear", direction: str = "forward") -> Result:
    id = f"dump.json::{api}.{number}.{direction}"
    return Result(id, api, direction, "float32", "cpu", "pass", "auto", "", "", 0.0, (), (), answers=answers)


def kept(part: int, words: str = "") -> Answer:
    return Answer("relation.batch", "kept" if part else "broken", words, {"holds": (part, 1)})


def bits(equal: int, ulp: float, words: str = "") -> Answer:
    return Answer("A against B", "rounding", words, {"equal_bits": (equal, 100)}, {"nearer_A": 1}, {"ulp_max": ulp})


def added(*results: Result) -> Answers:
    made = Answers()
    for each in results:
        made.add(each)
    return made


def test_a_question_has_a_line_and_one_for_each_row_that_is_not_as_it_should_be() -> None:
    made = added(
        result(0, kept(1)),
        result(1, kept(0)),
        result(0, kept(1), direction="backward"),
        result(0, kept(0), api="F.mm"),
        result(2, Answer("relation.batch", "not checked")),
    )
    assert list(made.lines(80)) == [
        "relation.batch, 5 cases: 2 broken, 2 kept, 1 not checked",
        "  F.mm float32 forward: broken",
        "  F.linear float32 forward: 1 broken, 1 kept, 1 not checked",
    ]


def test_shares_totals_and_the_largest_are_said() -> None:
    made = added(result(0, bits(50, 2.0)), result(1, bits(100, 4.0)))
    assert list(made.lines(200)) == [
        "A against B, 2 cases: 2 rounding; equal bits 75 %; ulp max 4; nearer A 2",
        "  F.linear float32 forward: 2 rounding; equal bits 75 %; ulp max 4; nearer A 2",
    ]


def test_almost_all_is_not_all_and_nan_is_above_all() -> None:
    row = Row.of(Answer("?", "rounding", "", {"equal_bits": (99_999, 100_000)}))
    assert row.text() == "rounding; equal bits 99.9 %"
    row.add(Row.of(bits(100, math.nan)))
    row.add(Row.of(bits(100, 5.0)))
    assert "ulp max nan" in row.text()


def test_words_name_the_first_case_in_any_order() -> None:
    answers = [result(number, kept(0, "all zeros")) for number in (10, 9, 11)]
    for found in (answers, answers[::-1]):
        assert "; all zeros in 3, as F.linear.9.forward" in next(added(*found).lines(80))


def test_several_shares_are_a_table_and_name_the_least() -> None:
    made = added(result(0, Answer("sensitivity", "strong", "", {"one NaN": (2, 2), "stale": (0, 1)})))
    assert list(made.lines(80)) == [
        "sensitivity, 1 case: strong; 66.7 % found",
        "                                            found       of",
        "  one NaN                                       2        2",
        "  stale                                         0        1",
        "  F.linear float32 forward: strong; 66.7 % found, least stale 0 %",
    ]


def test_of_many_rows_the_worst_are_listed() -> None:
    lines = [*added(*(result(0, bits(each, 1.0), api=f"F.a{each:02}") for each in range(20))).lines(80)]
    assert lines[1].startswith("  F.a00 float32 forward: rounding; equal bits 0 %")
    assert lines[-1] == "  and 10 more, which --probe-out=DIR keeps in answers.csv"


def test_the_files_have_all_rows(tmp_path: Path) -> None:
    made = added(
        result(0, kept(1, "so"), bits(50, math.inf), Answer("relation.out", "not checked")), result(1, kept(1))
    )
    found, content = made.write(tmp_path)
    assert json.loads(content.read_text()) == {"schema": 1, "answers": [
        {"question": "A against B", "api": "F.linear", "dtype": "float32", "direction": "forward", "cases": 1,
         "outcomes": {"rounding": 1}, "shares": {"equal_bits": [50, 100]}, "totals": {"nearer_A": 1},
         "most": {"ulp_max": "inf"}, "messages": {}},
        {"question": "relation.batch", "api": "F.linear", "dtype": "float32", "direction": "forward", "cases": 2,
         "outcomes": {"kept": 2}, "shares": {"holds": [2, 2]}, "totals": {}, "most": {},
         "messages": {"so": [1, "F.linear.0.forward"]}},
        {"question": "relation.out", "api": "F.linear", "dtype": "float32", "direction": "forward", "cases": 1,
         "outcomes": {"not checked": 1}, "shares": {}, "totals": {}, "most": {}, "messages": {}},
    ]}  # fmt: skip
    with found.open(encoding="utf-8-sig") as file:
        first, second, _ = csv.DictReader(file)
    assert (first["rounding"], first["equal_bits share"], first["equal_bits of"]) == ("1", "0.5", "100")
    assert (first["ulp_max"], first["nearer_A"], first["kept"]) == ("inf", "1", "")
    assert (second["kept"], second["holds share"], second["messages"]) == ("2", "1.0", "so")


@pytest.mark.parametrize("results", [(), (result(0),)])
def test_without_questions_nothing_is_said_or_written(tmp_path: Path, results: tuple[Result, ...]) -> None:
    made = added(*results)
    assert ([*made.lines(80)], [*made.write(tmp_path)], [*tmp_path.iterdir()]) == ([], [], [])
