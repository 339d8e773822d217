from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_probe.features.unique.duplicates import Folds
from pytest_probe.features.unique.outlines import outline
from pytest_probe.model.dump import Call, Dump
from pytest_probe.records import read_dump
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

X = tensor(2, 3)
NAN = float("nan")

# What the text of a tensor may say beside its Max, Min, Mean and Norm, the traps among it.
BESIDE: list[dict[str, Any]] = [
    {},
    {"zeros": 0},
    {"zeros": 0.0},
    {"zeros": 0.25},
    {"zeros": 1},
    {"zeros": 0.5, "mode": [1.5, 0.25]},
    {"zeros": 0.5, "mode": [-2.0, 0.5], "constant_rows": [0.5, None]},
    {"zeros": 0.5, "constant_rows": [0.25, 0.0]},
    {"zeros": 0.5, "constant_rows": [0.5, 1.5]},
    {"zeros": 7.5},
    {"address": 4096},
    {"address": 8192},
    {"Max": NAN, "NaN": 1, "Max_except_inf_nan": 2.5},
    {"Max": float("inf"), "Norm": float("inf")},
    {"Max": "inf"},
    {"Max": [1.0, 2.0]},
    {"Max": 1e250, "Norm": 1e-250},
    {"Max": 10**25},
    {"Max": None},
    {"Max": True},
]
numbers = st.sampled_from([-7.5, -1.0, 0.0, 0.5, 2, 2.25, 3e-5, 4.0, 9])
tensors = st.builds(
    lambda top, bottom, mean, norm, beside: {**X, "Max": top, "Min": bottom, "Mean": mean, "Norm": norm, **beside},
    *[numbers] * 4,
    st.sampled_from(BESIDE),
)
calls = st.builds(
    lambda args, output, incoming: (forward(*args, output=output), incoming),
    st.lists(tensors, min_size=1, max_size=2),
    tensors,
    st.none() | tensors,
)


def raised(spec: dict[str, Any], number: int) -> dict[str, Any]:
    """With another norm than those of other records: of equal ones either may be the larger one."""
    return {**spec, "Norm": spec["Norm"] + number / 2**10}


def written(folder: Path, found: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]) -> Dump:
    data: dict[str, Any] = {}
    for number, (call, incoming) in enumerate(found):
        data[f"Functional.relu.{number}.forward"] = call
        if incoming is not None:
            data[f"Functional.relu.{number}.backward"] = backward(incoming, X)
    return read_dump(write_dump(folder, data))


def folded(dump: Dump) -> tuple[list[tuple[int, int] | None], list[Call]]:
    """For each record the number of the first one that it is alike, and how many others there are; the calls of the
    first ones."""
    folds = Folds(True)
    folds.add(dump, dump.records)
    found = [folds.of(record) for record in dump.records]
    decode = folds.folded(dump).decode
    kept = [fold.record for fold, record in zip(found, dump.records, strict=True) if fold and fold.record is record]
    return [None if fold is None else (fold.record.number, fold.others) for fold in found], [*map(decode, kept)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(calls, min_size=1, max_size=3).flatmap(lambda few: st.lists(st.sampled_from(few), max_size=9)))
)
def test_nothing_changes_but_the_time(found: list[list[tuple[dict[str, Any], dict[str, Any] | None]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        every = [call for some in found for call in some]
        told = [
            (
                {**call, "input_args": [raised(spec, number) for spec in call["input_args"]]},
                None if incoming is None else raised(incoming, number),
            )
            for number, (call, incoming) in enumerate(every)
        ]
        dump = written(Path(folder), told)
        assert repr(folded(dump)) == repr(folded(replace(dump, statistics=None)))


def test_of_many_alike_few_are_decoded(tmp_path: Path) -> None:
    values = [(index * 37) % 101 / 10 for index in range(100)]
    found = [({**forward({**X, "Max": value, "Norm": value}, output=X)}, None) for value in values]
    dump, decoded = written(tmp_path, found), []

    def decode(record: Any) -> Call:
        decoded.append(record.number)
        return dump.decode(record)

    numbers, (call,) = folded(replace(dump, decode=decode))
    assert numbers == [(0, 99)] * 100
    assert call.args[0].max == call.args[0].norm == max(values)
    # The first one once more, since the second one is put with it.
    assert decoded == [0, 1, 0, values.index(max(values))]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"Max": 1.0}, {"Max": -2}, True),
        ({"Mean": 1e-9}, {"Mean": -1.5e09}, True),
        ({"zeros": 0.5}, {"zeros": 1.0}, True),
        ({"zeros": 0.5}, {"zeros": 0}, False),
        ({"zeros": 0.5}, {"zeros": 0.0}, False),
        ({"Max": 1.0}, {"Max": NAN}, False),
        ({"Max": 1.0}, {"Max": 1e300}, False),
        ({"shape": [2, 3]}, {"shape": [3, 2]}, False),
        ({"True": 3}, {"True": 4}, False),
        ({"values": [1, 2]}, {"values": [1, 3]}, False),
        ({"data_name": "a.pt"}, {"data_name": "b.pt"}, False),
    ],
)
def test_which_texts_are_equal(one: dict[str, Any], other: dict[str, Any], equal: bool, tmp_path: Path) -> None:
    dump = written(tmp_path, [(forward({**X, **given}, output=X), None) for given in (one, other)])
    first, second = (outline(dump, record) for record in dump.records)
    assert first is not None
    assert second is not None
    assert (first.key == second.key) == equal


def test_memory_that_is_shared_stays_shared(tmp_path: Path) -> None:
    places = [(1, 2), (7, 9), (5, 5), (4, 4)]
    given = [(forward({**X, "address": one}, {**X, "address": two}, output=X), None) for one, two in places]
    dump = written(tmp_path, given)
    found = [told.key for told in (outline(dump, record) for record in dump.records) if told is not None]
    assert found[0] == found[1] != found[2] == found[3]


def test_a_number_of_the_program_is_no_statistic(tmp_path: Path) -> None:
    """A keyword argument may have any name."""
    named = ({"Max": {"type": "float", "value": value}} for value in (1.0, 2.0))
    given = [{**forward(X, output=X), "input_kwargs": kwargs} for kwargs in named]
    dump = written(tmp_path, [(call, None) for call in given])
    first, second = (outline(dump, record) for record in dump.records)
    assert first is not None
    assert second is not None
    assert first.key != second.key
