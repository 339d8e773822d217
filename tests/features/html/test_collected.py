"""What the page keeps of each case."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pytest_probe.features.html.collected import FIXED, LONG_ROW, ROW, WORST, Collected, in_script
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
def test_what_is_in_a_script_cannot_end_it(text: str) -> None:
    written = in_script(msgspec.json.encode({text: [text]}))
    assert not {*"<>&\u2028\u2029"} & set(written.decode())
    assert json.loads(written) == {text: [text]}


def test_what_could_end_a_script_or_a_line() -> None:
    assert in_script(msgspec.json.encode("</script>\u2028&")) == b'"\\u003c/script\\u003e\\u2028\\u0026"'


@given(TEXTS)
def test_details_cannot_end_a_script(text: str) -> None:
    result = structs.replace(made_result(3, "error"), reason=text, notes=(text,), standard=text)
    ((_, details),) = collected(result).details()
    assert b"<" not in details
    assert json.loads(details)["standard"] == text


def test_the_data_of_plots_are_small() -> None:
    for result in made_results(40, 20):
        assert result.details is not None
        assert len(msgspec.json.encode(result.details.plots)) <= 4096
