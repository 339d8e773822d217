"""What the page keeps of each case, and which cases it shows in detail."""

from __future__ import annotations

import json
from heapq import nlargest

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from pytest_probe.features.html.collected import FIXED, LONG_ROW, ROW, WORST, Collected, in_script
from pytest_probe.features.html.plugin import MAX_DETAILED_PASSES, ShownInDetail
from pytest_probe.model.verdict import OutputVerdict, Verdict
from tests.support.made_results import made_result, made_results

NUMBERS = st.floats() | st.sampled_from(["nan", "inf", "-inf"])
TEXTS = st.text(max_size=300)


def collected(*results: object) -> Collected:
    found = Collected()
    for result in results:
        found.add(result)  # type: ignore[arg-type]
    return found


def test_a_row_of_the_page_refers_to_shared_names() -> None:
    found = collected(made_result(7))
    row = json.loads(found.rows[0])
    names = {kind: list(each) for kind, each in found.names.items()}
    assert row[1] == "Functional.softmax.3.backward"
    shared = ((0, "labels"), (2, "dtypes"), (3, "apis"), (6, "verdicts"))
    found_names = [names[kind][row[place]] for place, kind in shared]
    assert found_names == ["dump.json", "float32", "Functional.softmax", "pass"]
    numbers = dict(zip(found.columns, row[FIXED:], strict=True))
    ratio = made_result(7).outputs[0].metrics["noise_ratio"]
    assert isinstance(ratio, float)
    assert numbers["noise_ratio"] == float(f"{ratio:.4g}")
    assert numbers["limit_share"] == float(f"{ratio / 64:.4g}")
    assert "noise_ratio_limit" not in numbers
    assert "k" not in numbers


def test_errors_warnings_and_the_worst_others_have_details() -> None:
    results = [*made_results(1000, 30)]
    found = collected(*results)
    shown = {row for row, _ in found.details()}
    wrong = {row for row, result in enumerate(results) if result.verdict != "pass"}
    assert len(wrong) == 30
    assert wrong < shown
    assert len(shown) == 30 + WORST
    shares = [result.outputs[0].metrics["noise_ratio"] for result in results]
    least = min(float(shares[row] or 0) for row in shown - wrong)
    assert all(float(shares[row] or 0) <= least for row in set(range(1000)) - shown)


def test_an_error_has_its_reason_in_its_row() -> None:
    result = made_result(7, "error")
    output = structs.replace(result.outputs[0], reason="so wrong " * 100)
    found = collected(structs.replace(result, outputs=(output,)))
    row = json.loads(found.rows[0])
    assert len(found.rows[0]) <= LONG_ROW
    assert row[FIXED - 1].startswith("so wrong so wrong so wrong")
    names = {kind: list(each) for kind, each in found.names.items()}
    assert (names["causes"][row[10]], names["places"][row[11]]) == (
        "all times 1.0003",
        "layers.0.attention, layers.py:120",
    )


def test_rows_refer_to_their_groups() -> None:
    found = collected(*made_results(100, 20))
    groups = [group.first.key for group in found.groups.of("error", "warning")]
    assert sorted(found.group_places.values()) == list(range(len(groups)))
    members = [json.loads(row)[12] for row in found.rows]
    for key in groups:
        assert members.count(found.group_places[key]) == found.groups.found[key].count
    assert members.count(-1) == 80


@given(TEXTS, TEXTS, TEXTS, st.dictionaries(st.text(max_size=30), NUMBERS, max_size=30))
def test_a_row_is_never_longer_than_it_may_be(name: str, reason: str, text: str, metrics: dict[str, object]) -> None:
    result = made_result(3)
    output = structs.replace(result.outputs[0], metrics=metrics)
    result = structs.replace(
        result, id=f"{text}::{name}", reason=reason, outputs=(output,), module=text, dtype=text, duration=1.23456789e-5
    )
    row = collected(result).rows[0]
    assert len(row) <= ROW
    assert isinstance(json.loads(row), list)


@given(TEXTS)
@example("</script>\u2028&")
def test_what_is_in_a_script_cannot_end_it(text: str) -> None:
    written = in_script(msgspec.json.encode({text: [text]}))
    assert not {*"<>&\u2028\u2029"} & set(written.decode())
    assert json.loads(written) == {text: [text]}


@given(TEXTS)
def test_details_cannot_end_a_script(text: str) -> None:
    result = structs.replace(made_result(3, "error"), reason=text, notes=(text,), standard=text)
    ((_, details),) = collected(result).details()
    assert b"<" not in details
    assert json.loads(details)["standard"] == text


def passed(ratio: float) -> Verdict:
    metrics = {"noise_ratio": ratio, "noise_ratio_limit": 64.0}
    return Verdict("pass", "auto", outputs=(OutputVerdict("output.0", (2,), "float32", "pass", "noise", "", metrics),))


@pytest.mark.parametrize(("verdict", "shown"), [("error", True), ("warning", True), ("skip", False)])
def test_errors_and_warnings_are_shown_in_detail_and_skips_are_not(verdict: str, shown: bool) -> None:
    chosen = ShownInDetail()
    for number in range(3 * MAX_DETAILED_PASSES):
        chosen.takes(passed(float(number)))
    assert chosen.takes(Verdict(verdict, "auto")) is shown  # type: ignore[arg-type]


def test_the_worst_of_all_are_among_those_that_are_taken() -> None:
    ratios = np.random.default_rng(0).lognormal(size=20_000).tolist()
    chosen = ShownInDetail()
    taken = [ratio for ratio in ratios if chosen.takes(passed(ratio))]
    assert set(nlargest(MAX_DETAILED_PASSES, ratios)) <= set(taken)
    # 200 + 200 ln(20,000 / 200)
    assert len(taken) == pytest.approx(1121, rel=0.1)


def test_a_case_without_a_limit_is_the_least() -> None:
    chosen = ShownInDetail()
    for _ in range(MAX_DETAILED_PASSES):
        assert chosen.takes(Verdict("pass", "auto"))
    assert not chosen.takes(Verdict("pass", "auto"))
    assert chosen.takes(passed(0.5))
