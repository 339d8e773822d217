"""`pytest_probe.check`: a function judged against its reference in one line of a script or of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pytest_probe import frameworks
from pytest_probe.check.check import Checker
from pytest_probe.check.engines import RunRequest
from pytest_probe.check.resolve import known_api
from pytest_probe.errors import SettingsError
from pytest_probe.model.card import Verdicts
from pytest_probe.registry import Registry
from pytest_probe.system.text import one_of

# What a message lists of a request.
_NAMED = ("device", "standard", "seed", "allow", "repeat", "reference_device", "flops")
# What an argument may be, by the type of its default.
_WORDS = {int: "a whole number", str: "a name", bool: "True or False", tuple: "a tuple of names"}


def check(
    function: Callable[..., Any],
    *,
    reference: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    api: str | None = None,
    dtype: Literal["same", "any"] = "same",
    strides: bool = False,
    borders: Callable[..., Any] | None = None,
    rtol: None = None,
    atol: None = None,
    **request: Any,
) -> Verdicts:
    """Judge function(*inputs, **kwargs) against the reference, as `probe.check` does in a test. Returns the verdicts:
    forward, then backward. A wrong function raises nothing; `passed` of the verdicts says whether all is right.

    request is as a run's, as device="cuda", standard="exact" or seed=1; without a device the framework's
    accelerator, else the CPU. Raises SettingsError where an argument cannot be used.
    """
    refuse_tolerances(rtol, atol)
    registry = Registry.default()
    for name in request:
        if name not in RunRequest.__struct_fields__:
            raise SettingsError("check", name, one_of(_NAMED, name))
    if (standard := request.get("standard", "auto")) not in registry.standards:
        raise SettingsError("check", standard, one_of(tuple(registry.standards), str(standard)))
    usual = RunRequest()
    for name, value in request.items():
        wanted = _WORDS.get(type(getattr(usual, name)))
        if wanted is not None and not isinstance(value, type(getattr(usual, name))):
            raise SettingsError(f"check: {name}", value, f"give {wanted}")
    checker = Checker(RunRequest(**request), registry)
    with checker.engines.settled():
        api = known_api(checker.engines, api or "")
    found = checker.compare(
        function,
        reference,
        inputs if isinstance(inputs, (list, tuple)) else (inputs,),
        kwargs,
        api=api,
        backward=backward,
        dtype=same(dtype),
        key=name_of(function),
        strides=strides,
        borders=borders,
    )
    return Verdicts(found)


def refuse_tolerances(rtol: object, atol: object) -> None:
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None:
            why = (
                "a check takes no tolerance: its limits depend on the dtype, the values and the steps of the reference"
            )
            advice = "leave it out; --probe-standard names other rules"
            raise SettingsError(f"check: {name}", value, f"{why}; {advice}")


def same(dtype: str) -> bool:
    """Must outputs have the dtype that the reference promises? Raises SettingsError for neither "same" nor "any"."""
    if dtype not in ("same", "any"):
        raise SettingsError("check: dtype", dtype, 'give "same", the dtype that the reference promises, or "any"')
    return dtype == "same"


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called, or the one that a partial calls."""
    while hasattr(function, "func"):
        function = function.func
    return frameworks.own_name(function).strip("<>")
