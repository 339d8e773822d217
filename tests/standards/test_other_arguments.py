"""Functions that are said to be an API, and take other arguments than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import judging
from pytest_probe.model.verdict import Verdict
from pytest_probe.standards.diagnosis import diagnose
from pytest_probe.standards.tables import classes_of, names
from tests.support.calls.making import place_of
from tests.support.comparing import compared

X = torch.tensor([[[1.25, -2.5, 1.25, 3.0], [0.5, 0.5, -1.0, 7.0]]])


def right(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.relu(x)


def wrong(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.relu(x) * (1.0 if x.dtype is torch.float64 else 1.5)


def verdicts(function: Callable[..., Any], x: torch.Tensor, api: str, **kwargs: Any) -> list[Verdict]:
    reference = right if function in (right, wrong) else halved
    return list(compared(function, reference, [x], kwargs, allow="none", api=api, backward=True))


def outcomes(function: Callable[..., Any], name: str, **kwargs: Any) -> list[str]:
    return [verdict.verdict for verdict in verdicts(function, X, _recorded(name), **kwargs)]


def _recorded(name: str) -> str:
    try:
        return place_of(name)
    except LookupError:
        return f"Torch.{name}"


@pytest.mark.evidence
@pytest.mark.parametrize("part", range(4))
def test_a_function_of_other_arguments_has_a_verdict(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """In few tests, since a call is a matter of milliseconds; causes, which take longer and hang on the classes, and of
    factorisations on the name, are looked for once for each set of classes."""
    seen: set[frozenset[str]] = set()
    for name in sorted(names())[part::4]:
        classes = classes_of(name)
        known = classes in seen and "factorisation" not in classes
        monkeypatch.setattr(judging, "diagnose", (lambda *asked: None) if known else diagnose)
        seen.add(classes)
        if "random" in classes:  # by a law that asks for no arguments, which a few numbers may fit, or not at all
            assert len(outcomes(wrong, name, kernel_size=X)) == 2, name
            continue
        assert outcomes(right, name) == ["pass", "pass"], name
        forward, backward = outcomes(wrong, name, kernel_size=X)
        assert forward == ("pass" if "uninitialised" in classes else "error"), name
        assert backward == "error" or (backward == "skip" and "factorisation" in classes), name


def halved(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 2)


def chosen_last(x: torch.Tensor) -> torch.Tensor:
    """The last of equal values has the gradient, not the first."""
    return halved(x.flip(-1, -2)).flip(-1, -2)


def too_steep(x: torch.Tensor) -> torch.Tensor:
    """The gradient is 1.01 times as large."""
    return halved(x.detach() + 1.01 * (x - x.detach()))


def test_what_hangs_on_arguments_that_cannot_be_read_is_judged_by_noise() -> None:
    x = torch.relu(torch.randn((2, 3, 8, 8), generator=torch.Generator().manual_seed(0)))
    assert [found.verdict for found in verdicts(halved, x, "Functional.max_pool2d")] == ["pass", "pass"]
    assert [found.verdict for found in verdicts(chosen_last, x, "Functional.max_pool2d")] == ["pass", "pass"]
    forward, backward = verdicts(too_steep, x, "Functional.max_pool2d")
    assert (forward.verdict, backward.verdict) == ("pass", "error")
    assert "because the rule of Functional.max_pool2d cannot read these arguments (" in backward.reason
