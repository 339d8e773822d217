"""Which cases prove little, and why: planted ones are named, others never, by runs and by statistics alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import frameworks
from pytest_probe.check.weak import predicted
from pytest_probe.features.sensitivity import ONE_TERM, UNSEEN, Spoiling
from pytest_probe.model.dump import Direction
from pytest_probe.model.verdict import Answer
from pytest_probe.registry import Registry
from pytest_probe.standards.tables import classes_of
from tests.check.conftest import Bench, Make, normal
from tests.support.devices import Emulated

X, Y, ROWS = normal(8, 16), normal(8, 16, seed=1), normal(8, 10)
ZEROS, COLUMN = torch.zeros(8, 16), normal(8, 1)
LABELS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 0])
MASK = torch.arange(128).reshape(8, 16) % 3 == 0
NONE, EVERY = torch.zeros_like(MASK), torch.ones_like(MASK)
Recorded: TypeAlias = tuple[Any, ...]
# Calls, whose gradients are meant where the name says so, and the words that name them.
WEAK: dict[str, tuple[Recorded, str]] = {
    "zeros": (("Torch.mul", torch.mul, X, ZEROS), "input.1 is all zeros"),
    "zero weights": (("Functional.linear", F.linear, X, torch.zeros(4, 16)), "input.1 is all zeros"),
    "zero gradient, backward": (("Torch.sigmoid", torch.sigmoid, X * 0 + 200), "grad.input.0 is all zeros"),
    "one label": (
        ("Functional.cross_entropy", F.cross_entropy, ROWS, torch.full((8,), 3)), "input.1 is all 3",
    ),
    "one class": (
        ("Functional.cross_entropy", F.cross_entropy, COLUMN, torch.zeros(8, dtype=torch.long)),
        "output.0 is all zeros, whatever the inputs are",
    ),
    "a mask of all": (("Tensor.masked_fill", torch.masked_fill, X, EVERY, 0.0), "input.1 is all True"),
    "no mask that lets through": (("Torch.where", torch.where, NONE, X, ZEROS), "input.2 is all zeros"),
    "one term": (("Torch.matmul", torch.matmul, COLUMN, normal(1, 16)), ONE_TERM),
    "softmax of one": (("Functional.softmax", F.softmax, COLUMN, 1), "output.0 is all 1, whatever the inputs are"),
    "saturated": (("Torch.sigmoid", torch.sigmoid, X.abs() + 200), "output.0 is all 1"),
    "lost digits": (("Torch.sin", torch.sin, 1e8 * X), UNSEEN),
    "everything dropped": (
        ("Functional.dropout", F.dropout, X, 1.0), "output.0 is all zeros, whatever the inputs are",
    ),
}  # fmt: skip
# What no statistics of arguments and outputs tell.
BY_RUNS = ("one term", "lost digits", "zero gradient, backward")
STRONG: dict[str, Recorded] = {
    "mul": ("Torch.mul", torch.mul, X, Y),
    "mul, backward": ("Torch.mul", torch.mul, X, Y),
    "linear without bias": ("Functional.linear", F.linear, X, normal(4, 16, seed=1), torch.zeros(4)),
    "labels": ("Functional.cross_entropy", F.cross_entropy, ROWS, LABELS),
    "labels, backward": ("Functional.cross_entropy", F.cross_entropy, ROWS, LABELS),
    "mask": ("Tensor.masked_fill", torch.masked_fill, X, MASK, 0.0),
    "where": ("Torch.where", torch.where, MASK, X, ZEROS),
    "matmul": ("Torch.matmul", torch.matmul, normal(8, 4), normal(4, 16)),
    "softmax": ("Functional.softmax", F.softmax, X, 1),
    "sigmoid": ("Torch.sigmoid", torch.sigmoid, X),
    "dropout": ("Functional.dropout", F.dropout, X, 0.5),
    "mean": ("Torch.mean", torch.mean, X),
    "mean, backward": ("Torch.mean", torch.mean, X),
    "sum, backward": ("Torch.sum", torch.sum, X),
    "relu": ("Functional.relu", F.relu, X),
    "zeros_like": ("Torch.zeros_like", torch.zeros_like, X),
    "layer_norm": ("Functional.layer_norm", F.layer_norm, X, (16,), torch.ones(16), torch.zeros(16)),
    "embedding": ("Functional.embedding", F.embedding, LABELS, normal(8, 4)),
    "item": ("Torch.add", torch.add, normal(1).reshape(()), 1.0),
}
# In the recorded dtype and in bfloat16 on the CPU, and under another device's name.
RUNS: dict[str, tuple[str, str | None]] = {
    "cpu": ("cpu", None),
    "bfloat16": ("cpu", "bfloat16"),
    "other": ("other", None),
    "other bfloat16": ("other", "bfloat16"),
}


def made(bench: Make, name: str, call: Recorded, device: str = "cpu") -> tuple[Bench, Direction]:
    direction: Direction = "backward" if name.endswith("backward") else "forward"
    registry = Registry(devices={"other": lambda name: Emulated("other")})
    return bench(*call, backward=direction == "backward", registry=registry, request={"device": device}), direction


def sensitivity_of(found: Bench, direction: Direction, dtype: str | None) -> Answer:
    checked = found.run("forward", dtype=dtype)
    if direction == "backward":
        checked = found.run("backward", dtype=dtype)
    assert checked.verdict.verdict == "pass", checked.verdict.reason
    answer = Spoiling(found.checker).of(checked)
    assert answer is not None
    return answer


def by_statistics(found: Bench, direction: Direction) -> str:
    record = found.dump.records[0]
    call = found.dump.decode(record)
    bound = frameworks.signatures().bind(f"{record.namespace}.{record.api}", call.args, call.kwargs)
    return predicted(call, direction, bound, classes_of(bound.name))


@pytest.mark.evidence
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", WEAK)
def test_a_weak_case_is_named(bench: Make, name: str, run: str) -> None:
    call, words = WEAK[name]
    device, dtype = RUNS[run]
    assert sensitivity_of(*made(bench, name, call, device), dtype).message == words


@pytest.mark.parametrize("name", [name for name in WEAK if name not in BY_RUNS])
def test_statistics_name_it_too(bench: Make, name: str) -> None:
    assert by_statistics(*made(bench, name, WEAK[name][0]))


@pytest.mark.evidence
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", STRONG)
def test_a_strong_case_is_not(bench: Make, name: str, run: str) -> None:
    device, dtype = RUNS[run]
    found = made(bench, name, STRONG[name], device)
    assert not sensitivity_of(*found, dtype).message
    assert not by_statistics(*found)
