"""Functions that are said to be an API, and take other arguments than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_probe.execution import Checker, Conditions
from pytest_probe.registry import Registry
from pytest_probe.standards import choices, diagnosis, fan_in, random, selection
from pytest_probe.standards.facts import _classes, facts
from tests.calls.making import place_of

# Whose arguments decide which judge takes them.
BY_ARGUMENTS = "interpolate upsample upsample_nearest histogram bincount div divide round embedding scatter".split()
NAMES = sorted(
    {entry.partition("@")[0] for names in _classes().values() for entry in names}
    | {*choices.DIMENSIONS, *selection.DIMENSIONS, *diagnosis.EPS, *diagnosis.APPROXIMATE, *random.DROPOUTS}
    | {*fan_in.PRODUCTS, *fan_in.CONVOLUTIONS, *fan_in.TRANSPOSED, *fan_in.REDUCTIONS, *fan_in.ROWS, *BY_ARGUMENTS}
)
X = torch.tensor([[[1.25, -2.5, 1.25, 3.0], [0.5, 0.5, -1.0, 7.0]]])


def right(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.relu(x)


def wrong(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.relu(x) * (1.0 if x.dtype is torch.float64 else 1.5)


def outcomes(function: Callable[..., Any], name: str, **kwargs: Any) -> list[str]:
    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    found = checker.compare(function, right, [X], kwargs, api=_recorded(name), backward=function is wrong)
    return [verdict.verdict for verdict in found]


def _recorded(name: str) -> str:
    try:
        return place_of(name)
    except LookupError:
        return f"Torch.{name}"


def test_a_function_of_other_arguments_has_a_verdict() -> None:
    """In one test, since a call is a matter of milliseconds."""
    for name in NAMES:
        classes = facts(f"Torch.{name}").classes
        if "random" in classes:  # by a law that asks for no arguments, which a few numbers may fit, or not at all
            assert len(outcomes(wrong, name, kernel_size=X)) == 2, name
            continue
        assert outcomes(right, name) == ["pass"], name
        forward, backward = outcomes(wrong, name, kernel_size=X)
        assert forward == ("pass" if "uninitialised" in classes else "error"), name
        assert backward == "error" or (backward == "skip" and "factorisation" in classes), name
