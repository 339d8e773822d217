"""One drawn call, judged in each direction as a recorded one is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field, structs
from msgspec.structs import replace

from pytest_probe.check.check import Checker
from pytest_probe.check.judging import KNOWN
from pytest_probe.check.outcome import CaseOutcome
from pytest_probe.errors import HookFailed, NoReference
from pytest_probe.features.fuzz.drawn import arguments_text
from pytest_probe.model.case import Case, Demands
from pytest_probe.model.dump import Call, Direction, Dump, Record
from pytest_probe.model.result import AnnouncedCall, FatalCall
from pytest_probe.model.run import Arguments, Leaf, mapped
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import BoolArray, dtype_name, float_format, is_floating, ulp_distance, widen

# What is required of the outputs of a drawn call, other than their numbers.
_DEMANDS = Demands(dtype=True, strides=True, drawn=True)

_Announced = Callable[[AnnouncedCall], AbstractContextManager[None]]


class Target(Struct, frozen=True):
    """An API as cases run it: name is the item's, path its dump's, directions are the ones to judge; ulp: the
    limit on units of the last place where inputs are exact."""

    api: str
    framework: str
    name: str
    path: Path
    directions: tuple[Direction, ...]
    ulp: float | None = None

    def case(self, call: Call, arguments: Arguments, direction: Direction) -> Case:
        """The case of one call."""
        namespace, _, api = self.api.partition(".")
        backward = b"" if "backward" in self.directions else None
        record = Record(self.name, namespace, api, 0, b"", backward)
        dump = Dump(self.path, self.framework, "", "", (record,), lambda _: call, lambda _: ())
        return Case(dump, record, direction, None, arguments=arguments, demands=_DEMANDS)


class JudgedCall(Struct, frozen=True):
    """What became of a call: checked in each direction, unless the reference rejected it, or it has ended a process
    before (fatal), so that it was not made again."""

    call: Call
    arguments: Arguments
    checked: tuple[CaseOutcome, ...] = ()
    rejected: str = ""
    contract: str = ""
    fatal: FatalCall | None = None

    @property
    def failing(self) -> CaseOutcome | None:
        """What has a wrong number, or met code of the project's that raised; None where all is right."""
        for each in self.checked:
            # More than an error of shapes, dtypes, strides and exceptions.
            wrong = (output.verdict == "error" and output.standard != "structure" for output in each.verdict.outputs)
            if any(wrong) or isinstance(each.forward, HookFailed):
                return each
        return None

    @property
    def known(self) -> Verdict | None:
        """The verdict that shows a known finding of the framework; None without one."""
        shown = (each.verdict for each in self.checked)
        return next((each for each in shown if any(output.standard == KNOWN for output in each.outputs)), None)

    @property
    def worst(self) -> tuple[float, Verdict] | None:
        """The largest share of a limit that an output took, 0 where none has a limit, with the verdict; None where
        nothing was judged."""
        shares = [(max(map(_share, each.verdict.outputs), default=0.0), each.verdict) for each in self.checked]
        return max(shares, key=lambda share: share[0], default=None)


class Trials(Struct, frozen=True):
    """Judges the calls of one search. announced gives the context in which a call is made. It limits the call's time,
    and lets a process that survives know which call it is; judge_drawn_call judges it as features do. fatal are the
    calls that have ended a process, by key; met are fatal calls that were drawn again."""

    checker: Checker
    target: Target
    announced: _Announced = lambda call: nullcontext()
    fatal: Mapping[str, FatalCall] = field(default_factory=dict)
    judge_drawn_call: Callable[[CaseOutcome], CaseOutcome] = lambda checked: checked
    met: dict[str, JudgedCall] = field(default_factory=dict)

    def judged(self, call: Call, arguments: Arguments, text: str = "") -> JudgedCall:
        """Run a call in the directions that are asked for. text shows it where it ends the process; "": its tensors by
        dtype and shape."""
        key = _key_of(arguments)
        if key in self.fatal:
            fatal = self.fatal[key]
            self.met[key] = JudgedCall(call, arguments, fatal=fatal)
            # A call that ends the reference's process says nothing about the device.
            if fatal.kind == NoReference.kind:
                return JudgedCall(call, arguments, rejected=f"{fatal.kind}: {fatal.reason}")
            return self.met[key]
        announced = AnnouncedCall(key, text or arguments_text(self.target.api, arguments))
        with self.announced(announced):
            forward = self.judge_drawn_call(self.checker.run(self.target.case(call, arguments, "forward")))
        forward = forward if self.target.ulp is None else _by_ulp(forward, self.target.ulp)
        if forward.verdict.verdict == "skip":
            kind, reason = forward.verdict.kind, forward.verdict.reason
            broken = f"the device accepts what the reference rejects: {reason}" if kind == NoReference.kind else ""
            return JudgedCall(call, arguments, rejected=f"{kind}: {reason}", contract=broken)
        checked: tuple[CaseOutcome, ...] = (forward,)
        asked = "backward" in self.target.directions and not _broken_contract(forward.verdict)
        if asked and forward.forward is not None:
            with self.announced(replace(announced, direction="backward")):
                case = structs.replace(forward.case, direction="backward")
                backward = self.judge_drawn_call(self.checker.run(case, forward))
            checked += () if backward.verdict.verdict == "skip" else (backward,)
        if "forward" not in self.target.directions:
            checked = checked[1:]
        contracts = (_broken_contract(each.verdict) for each in checked)
        return JudgedCall(call, arguments, checked, contract=next(filter(None, contracts), ""))


def _key_of(arguments: Arguments) -> str:
    """Equal for calls with equal arguments, to the bit."""
    digest = hashlib.blake2b(digest_size=16)

    def plain(value: Any, _: str) -> Any:
        if not isinstance(value, Leaf):
            return value
        return (value.array.shape, dtype_name(value.array.dtype), value.strides, value.offset, value.requires_grad)

    structure = mapped(arguments, plain)
    digest.update(repr((structure.args, structure.kwargs)).encode())
    for leaf in (*arguments.tensors.values(), *(each for each in arguments.gradients or () if each is not None)):
        digest.update(np.ascontiguousarray(leaf.array).tobytes())
    return digest.hexdigest()


def _broken_contract(verdict: Verdict) -> str:
    """How the device's call differs from the reference's, other than in numbers, or which relation between calls that
    only some users need it breaks; "" where neither."""
    if verdict.verdict == "warning" and "warning" in verdict.relations.values():
        return verdict.reason
    if verdict.verdict != "error":
        return ""
    if not verdict.outputs:
        return verdict.reason
    broken = (each for each in verdict.outputs if each.verdict == "error" and each.standard == "structure")
    return next((f"{each.name}: {each.reason}" for each in broken), "")


def _share(output: OutputVerdict) -> float:
    ratio, limit = output.metrics.get("noise_ratio"), output.metrics.get("noise_ratio_limit")
    if not isinstance(ratio, (int, float)) or not isinstance(limit, (int, float)) or not limit:
        return 0.0
    # What passes for another reason than its limit may be above it.
    return min(1.0, float(ratio) / float(limit))


def exact_elements(leaves: Mapping[str, Leaf], shape: tuple[int, ...]) -> BoolArray:
    """For which elements of an output of this shape are all floating tensors whole numbers, or halves? A tensor that
    does not broadcast to it, as an `out`, counts as a whole: for all elements, or for none."""
    found = np.ones(shape, bool)
    floats = [widen(leaf.array) for leaf in leaves.values() if is_floating(leaf.array.dtype)]
    with np.errstate(all="ignore"):
        for values in floats:
            exact = np.isfinite(values) & (2 * values == np.rint(2 * values))
            fits = len(values.shape) <= len(shape) and all(
                own in (1, whole) for own, whole in zip(values.shape[::-1], shape[::-1], strict=False)
            )
            found &= exact if fits else exact.all()
    return found


def _by_ulp(checked: CaseOutcome, limit: float) -> CaseOutcome:
    """The verdict on a forward that passed, with an error for each output that is more than `limit` units off. The
    operator works element by element."""
    sides = checked.worst
    if checked.verdict.verdict != "pass" or sides is None:
        return checked
    outputs = list(checked.verdict.outputs)
    for place, output in enumerate(outputs):
        actual, expected = sides.actual.get(output.name), sides.expected.get(output.name)
        if not isinstance(actual, np.ndarray) or expected is None or not is_floating(actual.dtype):
            continue
        exact = exact_elements(sides.replay.reference.leaves, actual.shape)
        form, wide = float_format(actual.dtype), np.abs(widen(expected))
        # A device may flush smaller numbers, and larger ones overflow.
        usual = exact & (wide >= 2.0**form.min_exponent) & (wide <= form.max) & np.isfinite(widen(actual))
        off = float(ulp_distance(actual[usual], widen(expected)[usual], actual.dtype).max(initial=0.0))
        if off > limit:
            reason = f"{off:.4g} ULP (limit {limit:.4g}) on inputs that are exact"
            outputs[place] = replace(output, verdict="error", standard="ulp", reason=reason)
    wrong = next((each for each in outputs if each.verdict == "error"), None)
    if wrong is None:
        return checked
    reason = f"{wrong.name}: {wrong.reason}"
    return replace(checked, verdict=replace(checked.verdict, verdict="error", reason=reason, outputs=tuple(outputs)))
