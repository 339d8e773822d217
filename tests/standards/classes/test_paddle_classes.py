"""Entries of classes.yaml that only Paddle has, proved on recorded calls of Paddle's.

The class's property holds, healthy outputs pass, and an output with one element off does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

paddle = pytest.importorskip("paddle")

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.registry import Registry
from pytest_probe.standards.exact import correctly_rounded, identical
from tests.standards.classes.test_classes import LISTS, OF_PADDLE
from tests.support.paddle_calls import checked, integers, tensor
from tests.support.proving import Asking, judged, spoiled

FUNCTIONAL = "nn.functional."
# By entry: the API's path, and a call of it.
CALLS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "gather_nd": ("gather_nd", (tensor(5, 7), integers(4, 2, min=0, max=4))),
    "multiplex": ("multiplex", ([tensor(5, 7), tensor(5, 7)], tensor(5, 1, dtype="int32", min=0, max=1))),
    "matrix_transpose": ("matrix_transpose", (tensor(5, 7),)),
    "maxout": (FUNCTIONAL + "maxout", (tensor(2, 4, 3, 3), 2)),
    "temporal_shift": (FUNCTIONAL + "temporal_shift", (tensor(6, 8, 2, 2), 3)),
    "fill_diagonal_tensor": ("Tensor.fill_diagonal_tensor", (tensor(5, 5), tensor(5))),
    "scale": ("scale", (tensor(5, 7), 1.7, 0.3)),
    "stanh": ("stanh", (tensor(5, 7),)),
    "swish": (FUNCTIONAL + "swish", (tensor(5, 7),)),
    "label_smooth": (FUNCTIONAL + "label_smooth", (tensor(5, 7, min=0.0, max=1.0),)),
    "increment": ("increment", (tensor(1), 0.3)),
    "standard_gamma": ("standard_gamma", (tensor(5, 7, min=0.5, max=3.0),)),
    "unscaled_dropout": (FUNCTIONAL + "dropout", (tensor(64, 64), 0.3, None, True, False, "downscale_in_infer")),
    "class_center_sample": (FUNCTIONAL + "class_center_sample", (integers(9, min=0, max=99), 100, 30)),
    "top_p_sampling": ("Tensor.top_p_sampling", (tensor(5, 7), tensor(5, 1, min=0.5, max=0.9))),
}
ENTRIES = sorted((kind, name) for kind, names in LISTS.items() for name in OF_PADDLE & set(names))


class Asked(Struct, frozen=True):
    """What the default standard was asked about a call, and what it said."""

    comparisons: list[tuple[Comparison, OutputVerdict]]

    def of(self, direction: str) -> list[tuple[Comparison, OutputVerdict]]:
        return [pair for pair in self.comparisons if pair[0].direction == direction]


def ask(path: str, *args: Any) -> Asked:
    asking, registry = Asking(asked=[]), Registry.default()
    registry.standards[asking.name] = asking
    found = checked(Checker(RunRequest(device="cpu", standard=asking.name, allow=("none",)), registry), path, *args)
    assert {verdict.verdict for verdict in found.values()} == {"pass"}, [verdict.reason for verdict in found.values()]
    assert asking.asked
    return Asked(asking.asked)


def exact(path: str, args: tuple[Any, ...]) -> None:
    identical_to_the_reference(ask(path, *args), "forward")


def exact_backward(path: str, args: tuple[Any, ...]) -> None:
    identical_to_the_reference(ask(path, *args), "backward")


def identical_to_the_reference(asked: Asked, direction: str) -> None:
    for comparison, verdict in asked.of(direction):
        assert identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype)).all()
        passes_unless_spoiled(comparison, verdict)


def passes_unless_spoiled(comparison: Comparison, verdict: OutputVerdict) -> None:
    assert verdict.verdict == "pass", verdict.reason
    assert judged(comparison, spoiled(comparison.actual)) == "error"


def moves(path: str, args: tuple[Any, ...]) -> None:
    """A zero that loses its sign fails."""
    ((comparison, _),) = ask(path, *args).of("forward")
    negative = replace(comparison, expected=np.full_like(comparison.expected, -0.0))
    assert judged(negative, np.full_like(comparison.actual, -0.0)) == "pass"
    assert judged(negative, np.zeros_like(comparison.actual)) == "error"


def elementwise(path: str, args: tuple[Any, ...]) -> None:
    """One element of the input reaches one element of the output."""
    for comparison, verdict in ask(path, *args).comparisons:
        passes_unless_spoiled(comparison, verdict)
    before = np.linspace(-2, 2, math.prod(args[0].shape)).reshape(args[0].shape)
    after = before.copy()
    after.flat[0] += 0.25
    outputs = [function(path)(paddle.to_tensor(given), *args[1:]).numpy() for given in (before, after)]
    assert np.flatnonzero(outputs[0] != outputs[1]).tolist() == [0]


def random(path: str, args: tuple[Any, ...]) -> None:
    """Another seed gives other values, and the verdict says that none is the right one."""
    verdict = checked(Checker(RunRequest(device="cpu"), Registry.default()), path, *args)["forward"]
    if verdict.kind == "unsupported by the device":
        pytest.skip(f"Paddle's CPU has no kernel: {verdict.reason}")
    # Of a dropout the kept elements are judged, and the pattern's share.
    assert (verdict.verdict, verdict.kind) == (("pass", "") if "dropout" in path else ("skip", "random values"))
    given = paddle.arange(math.prod(args[0].shape)).reshape(args[0].shape).astype(args[0].dtype)
    drawn = []
    for seed in (1, 2):
        paddle.seed(seed)
        result = function(path)(given, *args[1:])
        drawn.append(result[-1] if isinstance(result, tuple) else result)
    assert not paddle.equal_all(*drawn)


def function(path: str) -> Callable[..., Any]:
    return reduce(getattr, path.split("."), paddle)


PROOFS: Mapping[str, Callable[[str, tuple[Any, ...]], None]] = {
    "exact": exact,
    "exact_backward": exact_backward,
    "moves": moves,
    "elementwise": elementwise,
    "random": random,
}


@pytest.mark.parametrize(("kind", "entry"), ENTRIES)
def test_an_entry_is_what_its_list_says(kind: str, entry: str) -> None:
    path, args = CALLS[entry]
    PROOFS[kind](path, args)
