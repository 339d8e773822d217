from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.unique import Folds, widened_spec
from pytest_probe.model.dump import Call, Dump, TensorSpec
from pytest_probe.records import read_dump
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.writing import write_dump

X = tensor(2, 3)
INTEGERS = {**tensor(3, dtype="int64", requires_grad=False), "Max": 2, "Min": 0, "Mean": None, "Norm": None}


def folded(tmp_path: Path, *calls: dict[str, Any], stored: bool = True) -> tuple[list[int], Call]:
    """For each relu the number of the first one that it is alike, and the call of the first."""
    dump = read_dump(
        write_dump(tmp_path, {f"Functional.relu.{number}.forward": call for number, call in enumerate(calls)})
    )
    folds = Folds(stored)
    folds.add(dump, dump.records)
    found = [folds.of(record) for record in dump.records]
    numbers = [-1 if fold is None else fold.record.number for fold in found]
    return numbers, folds.folded(dump).decode(dump.records[0])


def relu(**given: Any) -> dict[str, Any]:
    return forward({**X, **given}, output=X)


def test_the_range_is_that_of_all_and_the_rest_that_of_the_largest_norm(tmp_path: Path) -> None:
    numbers, call = folded(
        tmp_path,
        relu(Max=3.0, Min=-1.0, Mean=0.5, Norm=4.0),
        relu(Max=2.0, Min=-7.0, Mean=-2.0, Norm=9.0),
        relu(Max=2.5, Min=0.0, Mean=1.5, Norm=5.0),
    )
    assert numbers == [0, 0, 0]
    (spec,) = call.args
    assert (spec.max, spec.min, spec.mean, spec.norm) == (3.0, -7.0, -2.0, 9.0)


def test_gradients_of_equal_calls_are_joined(tmp_path: Path) -> None:
    data: dict[str, Any] = {}
    for number, (largest, norm) in enumerate([(1.0, 2.0), (9.0, 1.5)]):
        data[f"Functional.relu.{number}.forward"] = forward(X, output=X)
        data[f"Functional.relu.{number}.backward"] = backward({**X, "Max": largest, "Norm": norm}, X)
    data["Functional.relu.2.forward"] = forward(X, output=X)
    dump = read_dump(write_dump(tmp_path, data))
    folds = Folds(True)
    folds.add(dump, dump.records)
    first, _, alone = map(folds.of, dump.records)
    assert [fold and fold.others for fold in (first, alone)] == [1, 0]
    (gradient,) = folds.folded(dump).decode(dump.records[0]).gradients or ()
    assert gradient is not None
    assert (gradient.max, gradient.norm) == (9.0, 2.0)


@pytest.mark.parametrize(
    "other",
    [
        relu(shape=[3, 2]),
        relu(dtype="torch.float16"),
        relu(requires_grad=False),
        relu(Max=float("nan"), Norm=float("nan")),
        forward(X, {"type": "bool", "value": True}, output=X),
        forward(X, output=tensor(3, 2)),
        {**forward(X, output=X), "input_kwargs": {"inplace": {"type": "bool", "value": False}}},
    ],
)
def test_calls_that_differ_are_kept_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    numbers, call = folded(tmp_path, relu(Max=3.0), other)
    assert numbers == [0, 1]
    assert call.args[0].max == 3.0


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"type": "int", "value": 1}, {"type": "int", "value": 1}, True),
        ({"type": "int", "value": 1}, {"type": "int", "value": 2}, False),
        ({"type": "int", "value": 1}, {"type": "float", "value": 1.0}, False),
        ({"type": "int", "value": 1}, {"type": "bool", "value": True}, False),
        ({**INTEGERS, "values": [0, 1, 2]}, {**INTEGERS, "values": [0, 1, 2]}, True),
        ({**INTEGERS, "values": [0, 1, 2]}, {**INTEGERS, "values": [0, 2, 1]}, False),
        (INTEGERS, {**INTEGERS, "Max": 5}, True),
        ({**INTEGERS, "data_name": "a.pt"}, {**INTEGERS, "data_name": "b.pt"}, False),
    ],
)
def test_plain_values_and_integers_decide(tmp_path: Path, one: Any, other: Any, alike: bool) -> None:
    numbers, _ = folded(tmp_path, forward(X, one, output=X), forward(X, other, output=X))
    assert numbers == [0, 0 if alike else 1]


def test_stored_tensors_are_all_of_the_record_of_the_largest_norm(tmp_path: Path) -> None:
    calls = [
        forward(
            {**X, "Norm": one, "data_name": f"x{place}.pt"}, {**X, "Norm": two, "data_name": f"y{place}.pt"}, output=X
        )
        for place, (one, two) in enumerate([(3.0, 3.0), (1.0, 9.0), (5.0, 1.0), (8.0, 8.0)])
    ]
    _, call = folded(tmp_path, *calls)
    assert [spec.data_name for spec in call.args] == ["x3.pt", "y3.pt"]
    _, call = folded(tmp_path, *calls[:3])
    assert [spec.data_name for spec in call.args] == ["x1.pt", "y1.pt"]
    _, call = folded(tmp_path, *calls[:3], stored=False)
    assert [spec.norm for spec in call.args] == [5.0, 9.0]


def test_what_cannot_be_decoded_stays_itself(tmp_path: Path) -> None:
    numbers, _ = folded(tmp_path, relu(), {"input_args": 3}, relu())
    assert numbers == [0, -1, 0]


def test_integers_without_values_are_as_wide_as_all() -> None:
    specs = [TensorSpec("int64", (3,), max=2, min=1), TensorSpec("int64", (3,), max=1, min=0)]
    assert widened_spec(*specs) == TensorSpec("int64", (3,), max=2, min=0)


NAN = float("nan")
BLOCKS = {
    **{"blocks": 48, "binades": 0.0, "not_finite": 0},
    **{"clipped": 0.25, "clipped_in_a_block": 1.0, "flushed": 0.0, "flushed_in_a_block": 0.0},
}


def written(folder: Path, found: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]) -> Dump:
    data: dict[str, Any] = {}
    for number, (call, incoming) in enumerate(found):
        data[f"Functional.relu.{number}.forward"] = call
        if incoming is not None:
            data[f"Functional.relu.{number}.backward"] = backward(incoming, X)
    return read_dump(write_dump(folder, data))


def merged(dump: Dump) -> tuple[list[tuple[int, int] | None], list[Call]]:
    """For each record the number of the first one that it is alike, and how many others there are; the calls of the
    first ones."""
    folds = Folds(True)
    folds.add(dump, dump.records)
    found = [folds.of(record) for record in dump.records]
    decode = folds.folded(dump).decode
    kept = [fold.record for fold, record in zip(found, dump.records, strict=True) if fold and fold.record is record]
    return [None if fold is None else (fold.record.number, fold.others) for fold in found], [*map(decode, kept)]


def test_finite_limits_next_to_an_infinite_one_may_differ(tmp_path: Path) -> None:
    outputs = [{**X, "Max": math.inf, "Norm": math.inf, "Min": least} for least in (-7.5, -7.5, -1.0)]
    assert merged(written(tmp_path, [(forward(X, output=output), None) for output in outputs]))[0] == [(0, 2)] * 3


def test_of_many_alike_one_call_is_kept(tmp_path: Path) -> None:
    values = [(index * 37) % 101 / 10 for index in range(100)]
    dump = written(tmp_path, [(forward({**X, "Max": value, "Norm": value}, output=X), None) for value in values])
    folds = Folds(True)
    before = sum(isinstance(each, Call) for each in gc.get_objects())
    folds.add(dump, dump.records)
    assert sum(isinstance(each, Call) for each in gc.get_objects()) == before + 1
    fold = folds.of(dump.records[-1])
    assert fold is not None
    assert (fold.record, fold.others) == (dump.records[0], 99)
    (spec,) = folds.folded(dump).decode(dump.records[0]).args
    assert spec.max == spec.norm == max(values)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"Max": 1.0}, {"Max": -2}, True),
        ({"Mean": 1e-9}, {"Mean": -1.5e09}, True),
        ({"zeros": 0.5}, {"zeros": 1.0}, True),
        ({"zeros": 0.5}, {"zeros": 0}, False),
        ({"zeros": 0.5}, {"zeros": 0.0}, False),
        ({"blocks": BLOCKS}, {"blocks": {**BLOCKS, "binades": 7.25, "flushed": 1e-05}}, True),
        ({"Max": 1.0}, {"Max": NAN}, False),
        ({"Max": 1.0}, {"Max": 1e300}, True),
        ({"Max": float("inf"), "Norm": float("inf")}, {"Max": 2.0, "Norm": 3.0}, False),
        ({"zeros": 0.5, "mode": [1.5, 0.25]}, {"zeros": 0.5, "mode": [-2.0, 0.5]}, True),
        ({"zeros": 0.5, "mode": [1.5, 0.25]}, {"zeros": 0.5}, False),
        ({"zeros": 0.5, "constant_rows": [0.5, None]}, {"zeros": 0.5}, False),
        ({"shape": [2, 3]}, {"shape": [3, 2]}, False),
        ({"data_name": "a.pt"}, {}, False),
        ({"md5": "2287403f"}, {"md5": "cdac923d"}, True),
        ({"md5": "0x00000000deadbeef"}, {"md5": ""}, True),
    ],
)
def test_which_tensors_are_alike(one: dict[str, Any], other: dict[str, Any], equal: bool, tmp_path: Path) -> None:
    dump = written(tmp_path, [(forward({**X, **given}, output=X), None) for given in (one, other)])
    assert merged(dump)[0] == ([(0, 1)] * 2 if equal else [(0, 0), (1, 0)])


def test_memory_that_is_shared_stays_shared(tmp_path: Path) -> None:
    places = [(64, 128), (192, 640), (320, 320), (256, 256)]
    given = [(forward({**X, "address": one}, {**X, "address": two}, output=X), None) for one, two in places]
    assert merged(written(tmp_path, given))[0] == [(0, 1), (0, 1), (2, 1), (2, 1)]


def test_a_tensor_that_begins_elsewhere_is_another(tmp_path: Path) -> None:
    """A kernel may be for aligned tensors alone."""
    given = [(forward({**X, "address": place}, output=X), None) for place in (4096, 4100, 8192, 8196)]
    assert merged(written(tmp_path, given))[0] == [(0, 1), (1, 1), (0, 1), (1, 1)]


def test_a_number_of_the_program_is_no_statistic(tmp_path: Path) -> None:
    """A keyword argument may have any name."""
    named = ({"Max": {"type": "float", "value": value}} for value in (1.0, 2.0))
    given = [{**forward(X, output=X), "input_kwargs": kwargs} for kwargs in named]
    assert merged(written(tmp_path, [(call, None) for call in given]))[0] == [(0, 0), (1, 0)]
