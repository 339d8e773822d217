"""Is an entry of a map right? Both frameworks make the same drawn calls in float64, forward and all gradients.

An entry is proved where at least 20 calls agree, none differs, and each argument that it takes was given two values or
more. Floats agree within 1e-12 of the output's scale, everything else is equal. A call that either framework refuses
counts for nothing: so a value that only one of them takes is not covered.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.mapping.drawing import ABSENT, LEFT_OUT, DrawnCall, Group, drawn
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import Framework
from pytest_probe.frameworks.mapping import NO_COUNTERPART
from pytest_probe.model.dump import leaves
from pytest_probe.model.run import Arguments, Device, Leaf, Run, Wanted, Way
from pytest_probe.numerics.dtypes import is_complex, is_floating

LIMIT = 1e-12
CALLS = 20
TRIES, MOST = 36, 120
# What functions call the name and the place of their result.
_OF_RESULT = frozenset(("name", "out"))


class Pair(Struct, frozen=True):
    """Both frameworks: that of the records, and the one that makes their calls. device is that of the first, where it
    has no references of its own."""

    own: Framework
    other: Framework
    device: Device | None = None


class How(Struct, frozen=True):
    """Within which share of the scale both sides must agree; alone: the outputs whose gradients are compared, where the
    others are vectors of any sign. Without values shapes and dtypes alone are compared. fixed names arguments of which
    the own framework's kernel takes one value; without kernel it must refuse every call."""

    limit: float = LIMIT
    alone: tuple[str, ...] = ()
    values: bool = True
    dtype: str = "float64"
    fixed: tuple[str, ...] = ()
    kernel: bool = True

    def compared(self, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.values:
            return {name: np.zeros_like(value) for name, value in outputs.items()}
        if not self.alone:
            return outputs
        return {name: value if name in self.alone else np.abs(value) for name, value in outputs.items()}


class Proof(Struct, frozen=True):
    """What was found of an API: calls that agree, the worst difference as a share of the output's scale, how many calls
    a framework refused, the arguments of the API's own signature that no call covered, and what is wrong."""

    api: str
    calls: int
    worst: float
    refused: int
    uncovered: tuple[str, ...]
    troubles: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.troubles


def prove(
    api: str,
    own: Callable[..., Any],
    other: Callable[..., Any],
    takes: Sequence[str],
    groups: Sequence[Group],
    pair: Pair,
    how: How | None = None,
    turned: Callable[[DrawnCall], DrawnCall | None] = lambda call: call,
    drawn_for: Callable[..., Any] | None = None,
) -> Proof:
    """Compare a function of the records' framework with what makes its calls in the other one. takes names the
    arguments that must be covered; turned makes a call of each that is drawn for the function drawn_for."""
    how = how or How()
    seen = defaultdict[str, set[str]](set)
    agreed, worst, refused, troubles = 0, 0.0, 0, list[str]()
    reasons, defaults = dict[str, None](), _defaults(own)
    for number, made in enumerate(drawn(api, drawn_for or own, groups, MOST)):
        if number >= TRIES and agreed >= CALLS:
            break
        call = turned(made)
        if call is None:
            continue
        try:
            found = difference(own, other, call, pair, how)
        except Refused as error:
            refused += 1
            reasons.setdefault(str(error))
            continue
        if found > how.limit:
            troubles.append(f"({call}): differs by {found:.2g} of the scale")
            break
        agreed, worst = agreed + 1, max(worst, found)
        for name, text in call.shown.items():
            # What is left out is its default: both are one value.
            given = defaults.get(name, text) if text == LEFT_OUT else text
            seen[name.lstrip("*")].add(given if "[" not in given or not _has_tensor(given) else f"{given}{agreed}")
    if not troubles and how.kernel:
        troubles += _uncovered([name for name in takes if name not in how.fixed], seen)
        if agreed < CALLS:
            said = f"; refused: {next(iter(reasons))}" if reasons else ""
            troubles.append(f"{agreed} calls agree, expected {CALLS}{said}")
        elif troubles and reasons:
            troubles.append(f"refused: {next(iter(reasons))}")
    if agreed and not how.kernel:
        troubles.append("it has a kernel: prove it as all others are")
    missing = tuple(name for name in _parameters(own) if name not in seen)
    return Proof(api, agreed, worst, refused, missing, tuple(troubles))


def _uncovered(takes: Sequence[str], seen: Mapping[str, set[str]]) -> Iterator[str]:
    for name in takes:
        if len(seen.get(name, ())) < 2:
            yield f"{name}: {len(seen.get(name, ()))} values agree, expected 2"


def _has_tensor(text: str) -> bool:
    return any(kind in text for kind in ("float", "int", "bool", "complex"))


def _defaults(function: Callable[..., Any]) -> dict[str, str]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {each.name: repr(each.default) for each in found}


def _parameters(function: Callable[..., Any]) -> Iterator[str]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    yield from (each.name for each in found if each.name not in _OF_RESULT)


class Refused(Exception):
    """A framework, or the map, does not take a call."""


def difference(own: Callable[..., Any], other: Callable[..., Any], call: DrawnCall, pair: Pair, how: How) -> float:
    """The largest difference of both sides' results, as a share of their scale; inf where they are of other kinds.
    Raises Refused."""
    floats = frozenset(
        name
        for name, value in (*leaves(call.args, "input"), *leaves(call.kwargs, "kwargs"))
        if isinstance(value, Leaf) and (is_floating(value.array.dtype) or is_complex(value.array.dtype))
    )
    with pair.own.fixed_state(), pair.other.fixed_state():
        a = _run(pair.own, own, call, floats, Way(pair.device, "" if pair.device else how.dtype))
        b = _run(pair.other, other, call, floats, Way(dtype=how.dtype))
        found = [_differ(*(how.compared(run.outputs) for run in (a, b))), *_changed(a, b)]
        if not how.values or not floats or max(found) > how.limit:
            return max(found)
        try:
            return max(*found, _gradients(pair, a, b, how.alone))
        except _NoGradient:
            return max(found)


def _run(framework: Framework, function: Callable[..., Any], call: DrawnCall, floats: frozenset[str], way: Way) -> Run:
    try:
        arguments = Arguments(tuple(call.args), dict(call.kwargs), None)
        return framework.run(function, arguments, way, Wanted(floats, copies=True) if floats else None)
    except Unsupported as error:
        raise Refused(str(error)) from error
    except Exception as error:
        if isinstance(error, MemoryError) or not floats:
            reason = f"{framework.package}: {type(error).__name__}: {str(error).strip()[:160]}"
            raise Refused(reason) from error
    # A framework may refuse to be asked for gradients.
    return _run(framework, function, call, frozenset(), way)


def _changed(a: Run, b: Run) -> Iterator[float]:
    names = a.changed | b.changed
    yield _differ({name: a.after(name) for name in names}, {name: b.after(name) for name in names})


def _gradients(pair: Pair, a: Run, b: Run, alone: Sequence[str]) -> float:
    """Outputs that one framework alone differentiates must have gradients of zero there."""
    random = np.random.default_rng(7)
    every = sorted({*a.differentiable, *b.differentiable} & (set(alone) or a.outputs.keys()))
    seeds = {name: _seed(random, a.outputs[name]) for name in every}
    found = []
    for framework, run in ((pair.own, a), (pair.other, b)):
        own = {name: seeds[name] for name in every if name in run.differentiable}
        try:
            found.append(framework.gradients(run, own) if own else {})
        except NotImplementedError as error:
            raise _NoGradient from error
        except (Unsupported, RuntimeError, TypeError, ValueError, OSError) as error:
            if "derivative for" in str(error):
                raise _NoGradient from error
            raise Refused(f"gradient: {type(error).__name__}: {str(error).strip()[:160]}") from error
    return _differ(*(_filled(each, found) for each in found))


def _seed(random: np.random.Generator, output: np.ndarray) -> np.ndarray:
    real, imaginary = (random.standard_normal(output.shape) for _ in range(2))
    values = real + 1j * imaginary if is_complex(output.dtype) else real
    return np.asarray(values, output.dtype)


class _NoGradient(Exception):
    """A framework has no gradient of the call."""


def _filled(own: Mapping[str, np.ndarray], both: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """A gradient that one framework has not is zero."""
    every = {name: np.zeros_like(array) for each in both for name, array in each.items()}
    return {**every, **own}


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    if a.keys() != b.keys():
        return np.inf
    return max((_apart(np.asarray(a[name]), np.asarray(b[name])) for name in a), default=0.0)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    if not (is_floating(a.dtype) or is_complex(a.dtype)):
        return 0.0 if np.array_equal(a, b) else np.inf
    if not a.size:
        return 0.0
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    scale = float(np.abs(a[finite]).max(initial=0.0))
    apart = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    # Below the smallest normal number there is no scale.
    return 0.0 if apart == 0.0 else apart / max(scale, 1e-300)


__all__ = ["ABSENT", "CALLS", "LIMIT", "NO_COUNTERPART", "Pair", "Proof", "prove"]
