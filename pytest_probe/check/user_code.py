"""What a project adds, made safe to use: its exceptions and wrong results become HookFailed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pytest_probe.errors import HookFailed
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.run import Arguments, Device
from pytest_probe.model.verdict import SEVERITY, OutputVerdict, Verdict
from pytest_probe.standards import STANDARDS, Standard
from pytest_probe.user_errors import reporting_failures_of

T = TypeVar("T")
# The hooks' names, for messages.
INPUTS, VERDICT = "pytest_probe_inputs", "pytest_probe_verdict"


class Guarded:
    """A standard of the project's own."""

    def __init__(self, standard: Standard) -> None:
        self.name = standard.name
        self._standard = standard

    def judge(self, comparison: Comparison) -> OutputVerdict:
        what = f"the standard {self.name}"
        with reporting_failures_of(what):
            found = self._standard.judge(comparison)
        if not isinstance(found, OutputVerdict):
            raise HookFailed(f"{what} returned {_displayed(found)}, expected an OutputVerdict")
        _check_outcome(what, found.verdict)
        return found


OURS = frozenset(map(type, STANDARDS.values()))


def device(make: Callable[[str], Device], name: str) -> Device:
    """What a registered device's function gives. Raises HookFailed where that is no device."""
    what = f"the device registered for {name}"
    with reporting_failures_of(what):
        found = make(name)
        missing = [part for part in ("name", "put", "call", "get") if not hasattr(found, part)]
        own = None if missing else found.name
    if missing:
        raise HookFailed(
            f"{what} is {_displayed(found)} without {', '.join(missing)}; a device has name, put, call and get"
        )
    if not isinstance(own, str) or not own:
        raise HookFailed(f"{what} has the name {_displayed(own)}, expected text, as {name!r}")
    return found


def inputs(hook: Callable[..., Any], case: Any, arguments: Arguments) -> Arguments | None:
    """What pytest_probe_inputs makes of a case's arguments."""
    wanted = "arguments like those it was given, or None"
    found = _hooked(INPUTS, Arguments, wanted, hook, case=case, arguments=arguments)
    for name, leaf in found.tensors.items() if found is not None else ():
        if not isinstance(leaf.array, np.ndarray):
            raise HookFailed(
                f"{INPUTS} returned {_displayed(leaf.array)} as the array of {name}, expected a NumPy array"
            )
    return found


def hooked_verdict(hook: Callable[..., Any], case: Any, given: Verdict) -> Verdict | None:
    """What pytest_probe_verdict makes of a verdict."""
    found = _hooked(VERDICT, Verdict, "a Verdict or None", hook, case=case, verdict=given)
    if found is not None:
        _check_outcome(VERDICT, found.verdict)
    return found


def _hooked(what: str, kind: type[T], wanted: str, hook: Callable[..., Any], **given: Any) -> T | None:
    with reporting_failures_of(what):
        found = hook(**given)
    if found is not None and not isinstance(found, kind):
        raise HookFailed(f"{what} returned {_displayed(found)}, expected {wanted}")
    return found


def _check_outcome(what: str, outcome: object) -> None:
    if outcome not in tuple(SEVERITY):
        raise HookFailed(f"{what} returned the verdict {outcome!r}, expected one of {', '.join(SEVERITY)}")


def _displayed(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"{type(value).__name__} (its repr raised {type(error).__name__})"
    return f"{type(value).__name__} {text}" if len(text) <= 60 else type(value).__name__
