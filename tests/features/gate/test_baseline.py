"""What makes two calls the same to a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.gate.baseline import signature
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, DeviceSpec, Dump, Record, TensorSpec

X = TensorSpec("float32", (2, 3), max=1.0)


def of(*args: Any, api: str = "gelu", **kwargs: Any) -> str:
    record = Record(f"Functional.{api}.0", "Functional", api, 0, b"", None)
    dump = Dump(Path(), "torch", "", "", (record,), lambda _: Call(args, kwargs, None, None), lambda _: ())
    return signature(Case(dump, record, "forward"))


@pytest.mark.parametrize(
    "other",
    [
        of(TensorSpec("float32", (3, 2))),
        of(TensorSpec("bfloat16", (2, 3))),
        of(X, X),
        of(X, approximate="tanh"),
        of(X, 1.0),
        of([X]),
        of(X, api="relu"),
    ],
)
def test_another_call_has_another_fingerprint(other: str) -> None:
    assert other != of(X)
    assert len(other) == 8


def test_statistics_devices_and_the_order_of_keywords_are_no_part_of_it() -> None:
    assert of(X) == of(TensorSpec("float32", (2, 3), max=7.0, data_name="x.pt"))
    assert of(X, device=DeviceSpec("cuda:0")) == of(X, device=DeviceSpec("npu:3"))
    assert of(X, a=1, b=2) == of(X, b=2, a=1)
    assert of(X, object()) == of(X, object())


def test_it_is_the_same_in_every_process() -> None:
    assert of(X, 0.5, dim=-1, keep=True, nothing=None) == "48fdd63c"
