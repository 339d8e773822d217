"""Which cases prove little, and why: planted ones are named, others never, by runs and by statistics alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import frameworks
from pytest_probe.check.weak import predicted
from pytest_probe.features.sensitivity.plugin import ONE_TERM, UNSEEN, Spoiling
from pytest_probe.model.dump import Direction
from pytest_probe.model.verdict import Answer
from pytest_probe.registry import Registry
from pytest_probe.standards.tables import classes_of
from tests.check.conftest import Bench, Make, normal
from tests.support.devices import Emulated

_LABELS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 0])
_MASK = torch.arange(128).reshape(8, 16) % 3 == 0


# The arguments of a call, the direction, and the words that name it.
WEAK: dict[str, tuple[tuple[Any, ...], dict[str, Any], Direction, str]] = {
    "zeros": (("Torch.mul", torch.mul, normal(8, 16), torch.zeros(8, 16)), {}, "forward", "input.1 is all zeros"),
    "zero weights": (
        ("Functional.linear", F.linear, normal(8, 16), torch.zeros(4, 16)),
        {},
        "forward",
        "input.1 is all zeros",
    ),
    "zero gradient": (
        ("Torch.sigmoid", torch.sigmoid, normal(8, 16) * 0 + 200),
        {},
        "backward",
        "grad.input.0 is all zeros",
    ),
    "one label": (
        ("Functional.cross_entropy", F.cross_entropy, normal(8, 10), torch.full((8,), 3)),
        {},
        "forward",
        "input.1 is all 3",
    ),
    "one class": (
        ("Functional.cross_entropy", F.cross_entropy, normal(8, 1), torch.zeros(8, dtype=torch.long)),
        {},
        "forward",
        "output.0 is all zeros, whatever the inputs are",
    ),
    "a mask of all": (
        ("Tensor.masked_fill", torch.masked_fill, normal(8, 16), torch.ones(8, 16, dtype=torch.bool), 0.0),
        {},
        "forward",
        "input.1 is all True",
    ),
    "no mask that lets through": (
        ("Torch.where", torch.where, torch.zeros(8, 16, dtype=torch.bool), normal(8, 16), torch.zeros(8, 16)),
        {},
        "forward",
        "input.2 is all zeros",
    ),
    "one term": (("Torch.matmul", torch.matmul, normal(8, 1), normal(1, 16)), {}, "forward", ONE_TERM),
    "softmax of one": (
        ("Functional.softmax", F.softmax, normal(8, 1)),
        {"dim": 1},
        "forward",
        "output.0 is all 1, whatever the inputs are",
    ),
    "saturated": (("Torch.sigmoid", torch.sigmoid, normal(8, 16).abs() + 200), {}, "forward", "output.0 is all 1"),
    "lost digits": (("Torch.sin", torch.sin, 1e8 * normal(8, 16)), {}, "forward", UNSEEN),
    "everything dropped": (
        ("Functional.dropout", F.dropout, normal(8, 16)),
        {"p": 1.0},
        "forward",
        "output.0 is all zeros, whatever the inputs are",
    ),
}
# What no statistics of arguments and outputs tell.
_BY_RUNS = ("one term", "lost digits", "zero gradient")
STRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], Direction]] = {
    "mul": (("Torch.mul", torch.mul, normal(8, 16), normal(8, 16, seed=1)), {}, "forward"),
    "mul backward": (("Torch.mul", torch.mul, normal(8, 16), normal(8, 16, seed=1)), {}, "backward"),
    "linear without bias": (
        ("Functional.linear", F.linear, normal(8, 16), normal(4, 16, seed=1), torch.zeros(4)),
        {},
        "forward",
    ),
    "labels": (("Functional.cross_entropy", F.cross_entropy, normal(8, 10), _LABELS), {}, "forward"),
    "labels backward": (("Functional.cross_entropy", F.cross_entropy, normal(8, 10), _LABELS), {}, "backward"),
    "mask": (("Tensor.masked_fill", torch.masked_fill, normal(8, 16), _MASK, 0.0), {}, "forward"),
    "where": (("Torch.where", torch.where, _MASK, normal(8, 16), torch.zeros(8, 16)), {}, "forward"),
    "matmul": (("Torch.matmul", torch.matmul, normal(8, 4), normal(4, 16)), {}, "forward"),
    "softmax": (("Functional.softmax", F.softmax, normal(8, 16)), {"dim": 1}, "forward"),
    "sigmoid": (("Torch.sigmoid", torch.sigmoid, normal(8, 16)), {}, "forward"),
    "dropout": (("Functional.dropout", F.dropout, normal(8, 16)), {"p": 0.5}, "forward"),
    "mean": (("Torch.mean", torch.mean, normal(8, 16)), {}, "forward"),
    "mean backward": (("Torch.mean", torch.mean, normal(8, 16)), {}, "backward"),
    "sum backward": (("Torch.sum", torch.sum, normal(8, 16)), {}, "backward"),
    "relu": (("Functional.relu", F.relu, normal(8, 16)), {}, "forward"),
    "zeros_like": (("Torch.zeros_like", torch.zeros_like, normal(8, 16)), {}, "forward"),
    "layer_norm": (
        ("Functional.layer_norm", F.layer_norm, normal(8, 16), (16,), torch.ones(16), torch.zeros(16)),
        {},
        "forward",
    ),
    "embedding": (("Functional.embedding", F.embedding, _LABELS, normal(8, 4)), {}, "forward"),
    "item": (("Torch.add", torch.add, normal(1).reshape(()), 1.0), {}, "forward"),
}
# In the recorded dtype and in bfloat16 on the CPU, and under another device's name.
RUNS: dict[str, tuple[str, str | None]] = {
    "cpu": ("cpu", None),
    "bfloat16": ("cpu", "bfloat16"),
    "other": ("other", None),
    "other bfloat16": ("other", "bfloat16"),
}


def made(bench: Make, call: tuple[Any, ...], options: dict[str, Any], direction: Direction, device: str) -> Bench:
    registry = Registry(devices={"other": lambda name: Emulated("other")})
    request = {"device": device}
    return bench(*call, backward=direction == "backward", registry=registry, request=request, **options)


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
    signatures = frameworks.signatures()
    api = f"{record.namespace}.{record.api}"
    bound = signatures.bind(api, call.args, call.kwargs)
    return predicted(call, direction, bound, classes_of(bound.name))


@pytest.mark.evidence
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", WEAK)
def test_a_weak_case_is_named(bench: Make, name: str, run: str) -> None:
    call, options, direction, words = WEAK[name]
    device, dtype = RUNS[run]
    answer = sensitivity_of(made(bench, call, options, direction, device), direction, dtype)
    assert answer.message == words


@pytest.mark.parametrize("name", [name for name in WEAK if name not in _BY_RUNS])
def test_statistics_name_it_too(bench: Make, name: str) -> None:
    call, options, direction, _ = WEAK[name]
    assert by_statistics(made(bench, call, options, direction, "cpu"), direction)


@pytest.mark.evidence
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", STRONG)
def test_a_strong_case_is_not(bench: Make, name: str, run: str) -> None:
    call, options, direction = STRONG[name]
    device, dtype = RUNS[run]
    found = made(bench, call, options, direction, device)
    answer = sensitivity_of(found, direction, dtype)
    assert not answer.message
    assert not by_statistics(found, direction)
