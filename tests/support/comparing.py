"""Judges a function's call without a dump."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated


def compared(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    device: str = "cpu",
    allow: str = "auto",
    diagnosed: bool = True,
    **how: Any,
) -> tuple[Verdict, ...]:
    """The verdicts on a function beside its reference; any device but "cpu" is the CPU by another name."""
    registry = Registry.default()
    if device != "cpu":
        registry.devices[device] = Emulated
    checker = Checker(RunRequest(device=device, allow=(allow,), diagnosed=diagnosed), registry)
    return checker.compare(function, reference, args, kwargs, **how)


def outcomes(*call: Any, **how: Any) -> list[str]:
    """The same, in a word each."""
    return [found.verdict for found in compared(*call, **how)]
