from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.unique import Folds, widened_spec
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.records import read_dump
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

X = tensor(2, 3)
INTEGERS = {**tensor(3, dtype="int64", requires_grad=False), "Max": 2, "Min": 0, "Mean": None, "Norm": None}


NAN = math.nan
BLOCKS = {
    **{"blocks": 48, "binades": 0.0, "not_finite": 0},
    **{"clipped": 0.25, "clipped_in_a_block": 1.0, "flushed": 0.0, "flushed_in_a_block": 0.0},
}


def relu(**given: Any) -> dict[str, Any]:
    return forward({**X, **given}, output=X)


def merged(
    folder: Path, *calls: dict[str, Any], gradients: Sequence[dict[str, Any]] = (), stored: bool = True
) -> tuple[list[tuple[int, int] | None], list[Call]]:
    """For each relu the number of the first one that it is alike, and how many others there are; the calls of the
    first ones. The first relus have incoming gradients."""
    data: dict[str, Any] = {}
    for number, call in enumerate(calls):
        data[f"Functional.relu.{number}.forward"] = call
        if number < len(gradients):
            data[f"Functional.relu.{number}.backward"] = backward(gradients[number], X)
    dump = read_dump(write_dump(folder, data))
    folds = Folds(stored)
    folds.add(dump, dump.records)
    found = [folds.of(record) for record in dump.records]
    decode = folds.folded(dump).decode
    kept = [fold.record for fold, record in zip(found, dump.records, strict=True) if fold and fold.record is record]
    return [None if fold is None else (fold.record.number, fold.others) for fold in found], [*map(decode, kept)]


def test_the_range_is_that_of_all_and_the_rest_that_of_the_largest_norm(tmp_path: Path) -> None:
    statistics = [(3.0, -1.0, 0.5, 4.0), (2.0, -7.0, -2.0, 9.0), (2.5, 0.0, 1.5, 5.0)]
    calls = (dict(zip(("Max", "Min", "Mean", "Norm"), each, strict=True)) for each in statistics)
    numbers, (call,) = merged(tmp_path, *(relu(**each) for each in calls))
    (spec,) = call.args
    assert numbers == [(0, 2)] * 3
    assert (spec.max, spec.min, spec.mean, spec.norm) == (3.0, -7.0, -2.0, 9.0)


def test_gradients_of_equal_calls_are_joined(tmp_path: Path) -> None:
    gradients = [{**X, "Max": largest, "Norm": norm} for largest, norm in ((1.0, 2.0), (9.0, 1.5))]
    numbers, calls = merged(tmp_path, *[forward(X, output=X)] * 3, gradients=gradients)
    assert numbers == [(0, 1), (0, 1), (2, 0)]
    (gradient,) = calls[0].gradients or ()
    assert gradient is not None
    assert (gradient.max, gradient.norm) == (9.0, 2.0)


def plain(kind: str, value: object) -> dict[str, Any]:
    return forward(X, {"type": kind, "value": value}, output=X)


def integers(**given: Any) -> dict[str, Any]:
    return forward(X, {**INTEGERS, **given}, output=X)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (relu(), relu(shape=[3, 2]), False),
        (relu(), relu(dtype="torch.float16"), False),
        (relu(), relu(requires_grad=False), False),
        (relu(), plain("bool", True), False),
        (relu(), forward(X, output=tensor(3, 2)), False),
        (relu(), {**relu(), "input_kwargs": {"inplace": {"type": "bool", "value": False}}}, False),
        (plain("int", 1), plain("int", 1), True),
        (plain("int", 1), plain("int", 2), False),
        (plain("int", 1), plain("float", 1.0), False),
        (plain("int", 1), plain("bool", True), False),
        (integers(values=[0, 1, 2]), integers(values=[0, 1, 2]), True),
        (integers(values=[0, 1, 2]), integers(values=[0, 2, 1]), False),
        (integers(), integers(Max=5), True),
        (integers(data_name="a.pt"), integers(data_name="b.pt"), False),
        (relu(Max=1.0), relu(Max=-2), True),
        (relu(Mean=1e-9), relu(Mean=-1.5e09), True),
        (relu(zeros=0.5), relu(zeros=1.0), True),
        (relu(zeros=0.5), relu(zeros=0), False),
        (relu(zeros=0.5), relu(zeros=0.0), False),
        (relu(blocks=BLOCKS), relu(blocks={**BLOCKS, "binades": 7.25, "flushed": 1e-05}), True),
        (relu(Max=1.0), relu(Max=NAN), False),
        (relu(Max=1.0), relu(Max=1e300), True),
        (relu(Max=math.inf, Norm=math.inf), relu(Max=2.0, Norm=3.0), False),
        (relu(zeros=0.5, mode=[1.5, 0.25]), relu(zeros=0.5, mode=[-2.0, 0.5]), True),
        (relu(zeros=0.5, mode=[1.5, 0.25]), relu(zeros=0.5), False),
        (relu(zeros=0.5, constant_rows=[0.5, None]), relu(zeros=0.5), False),
        (relu(data_name="a.pt"), relu(), False),
        (relu(md5="2287403f"), relu(md5="cdac923d"), True),
        (relu(md5="0x00000000deadbeef"), relu(md5=""), True),
        # A keyword argument may have any name.
        ({**relu(), "input_kwargs": {"Max": {"type": "float", "value": 1.0}}},
         {**relu(), "input_kwargs": {"Max": {"type": "float", "value": 2.0}}}, False),
    ],
)  # fmt: skip
def test_which_calls_are_alike(one: dict[str, Any], other: dict[str, Any], alike: bool, tmp_path: Path) -> None:
    numbers, calls = merged(tmp_path, one, other)
    assert numbers == ([(0, 1)] * 2 if alike else [(0, 0), (1, 0)])
    assert alike or calls[0].args[0].max == one["input_args"][0]["Max"]


def test_stored_tensors_are_all_of_the_record_of_the_largest_norm(tmp_path: Path) -> None:
    calls = [
        forward(
            {**X, "Norm": one, "data_name": f"x{place}.pt"}, {**X, "Norm": two, "data_name": f"y{place}.pt"}, output=X
        )
        for place, (one, two) in enumerate([(3.0, 3.0), (1.0, 9.0), (5.0, 1.0), (8.0, 8.0)])
    ]
    for given, largest in ((calls, 3), (calls[:3], 1)):
        _, (call,) = merged(tmp_path, *given)
        assert [spec.data_name for spec in call.args] == [f"x{largest}.pt", f"y{largest}.pt"]
    _, (call,) = merged(tmp_path, *calls[:3], stored=False)
    assert [spec.norm for spec in call.args] == [5.0, 9.0]


def test_what_cannot_be_decoded_stays_itself(tmp_path: Path) -> None:
    assert merged(tmp_path, relu(), {"input_args": 3}, relu())[0] == [(0, 1), None, (0, 1)]


def test_integers_without_values_are_as_wide_as_all() -> None:
    specs = [TensorSpec("int64", (3,), max=2, min=1), TensorSpec("int64", (3,), max=1, min=0)]
    assert widened_spec(*specs) == TensorSpec("int64", (3,), max=2, min=0)


def test_finite_limits_next_to_an_infinite_one_may_differ(tmp_path: Path) -> None:
    outputs = [{**X, "Max": math.inf, "Norm": math.inf, "Min": least} for least in (-7.5, -7.5, -1.0)]
    assert merged(tmp_path, *(forward(X, output=output) for output in outputs))[0] == [(0, 2)] * 3


def test_of_many_alike_one_call_is_kept(tmp_path: Path) -> None:
    values = [(index * 37) % 101 / 10 for index in range(100)]
    calls = {f"Functional.relu.{number}.forward": relu(Max=value, Norm=value) for number, value in enumerate(values)}
    dump, folds = read_dump(write_dump(tmp_path, calls)), Folds(True)
    before = sum(isinstance(each, Call) for each in gc.get_objects())
    folds.add(dump, dump.records)
    assert sum(isinstance(each, Call) for each in gc.get_objects()) == before + 1
    fold = folds.of(dump.records[-1])
    assert fold is not None
    assert (fold.record, fold.others) == (dump.records[0], 99)
    (spec,) = folds.folded(dump).decode(dump.records[0]).args
    assert spec.max == spec.norm == max(values)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        # Memory that is shared stays shared.
        ([(64, 128), (192, 640), (320, 320), (256, 256)], [(0, 1), (0, 1), (2, 1), (2, 1)]),
        # A kernel may be for aligned tensors alone.
        ([(4096,), (4100,), (8192,), (8196,)], [(0, 1), (1, 1), (0, 1), (1, 1)]),
    ],
)
def test_addresses_decide(tmp_path: Path, places: list[tuple[int, ...]], expected: list[tuple[int, int]]) -> None:
    calls = [forward(*({**X, "address": place} for place in each), output=X) for each in places]
    assert merged(tmp_path, *calls)[0] == expected
