from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.unique.duplicates import Folds, widened_spec
from pytest_probe.model.dump import Call, TensorSpec
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


def test_gradients_likewise(tmp_path: Path) -> None:
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
def test_what_is_not_alike(tmp_path: Path, other: dict[str, Any]) -> None:
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
