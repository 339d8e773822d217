"""What a search found, as a verdict and as text: the smallest call that fails, and a script that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_probe.core.arguments import Arguments, Leaf, mapped
from pytest_probe.core.dump import Call
from pytest_probe.core.verdict import Verdict
from pytest_probe.execution.checked import Checked
from pytest_probe.execution.checker import Checker
from pytest_probe.execution.fuzzing.cuts import cut
from pytest_probe.execution.fuzzing.search import Findings
from pytest_probe.execution.fuzzing.trial import Judged, Target, judged
from pytest_probe.execution.fuzzing.values import simplified
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.inputs.fuzz.drawn import DrawnCall, Words, call_text
from pytest_probe.numerics.dtypes import widen

# How the notes begin that a run's summary shows.
FUZZED = "fuzz: "


@dataclass(frozen=True)
class Finding:
    """A call with wrong numbers, shrunk in shape and values; checked is its verdict with the likely cause."""

    drawn: DrawnCall
    judged: Judged
    checked: Checked

    def __str__(self) -> str:
        """The call, its tensors by dtype and shape."""

        def shown(value: Any, _: str) -> Any:
            if not isinstance(value, Leaf):
                return value
            layout = f" strides {list(value.strides)}" if value.strides is not None else ""
            return Words(f"{value.array.dtype.name}{list(value.array.shape)}{layout}")

        arguments = mapped(self.judged.arguments, shown)
        return call_text(self.drawn.api, arguments.args, arguments.kwargs)

    @property
    def script(self) -> str:
        """A script that makes the call; "" where it cannot be written down."""
        sides = self.checked.worst
        if sides is None:
            return ""
        reference = sides.replay.reference
        candidate = reference.candidate
        wanted = sorted(name.removeprefix("grad.") for name in sides.expected if name.startswith("grad."))
        title = f"{self.checked.case.id}: {self.checked.verdict.reason}"
        device, arguments = sides.replay.source.name, candidate.arguments
        given = sides.actual.values() if candidate.replaced else ()
        actual = [value for value in given if isinstance(value, np.ndarray)]
        call = LiteralCall(title, device, candidate.path, arguments, wanted, sides.replay.incoming, actual)
        return reference.framework.literal_script(call)


def finding(quick: Checker, checker: Checker, target: Target, findings: Findings) -> Finding | None:
    """The call that a search shrank to, with simple values; None where it found none. quick judges without a diagnosis.
    A call that does not fail again is one of a kernel that differs from run to run: it is shown as it was found."""
    if findings.failed is None:
        return None
    drawn, found = findings.failed
    direction = found.failing.case.direction if found.failing is not None else "forward"
    alone = replace(target, directions=("forward",)) if direction == "forward" else target

    def fails(call: Call, arguments: Arguments) -> bool:
        return judged(quick, alone, call, arguments).failing is not None

    call, arguments = cut(found.call, found.arguments, fails)
    arguments = simplified(arguments, lambda tried: fails(call, tried))
    arguments = _with_plain_gradients(judged(quick, alone, call, arguments), lambda tried: fails(call, tried))
    again = judged(checker, alone, call, arguments)
    if again.failing is None:
        again = found
    assert again.failing is not None
    return Finding(drawn, again, again.failing)


def _with_plain_gradients(found: Judged, fails: Callable[[Arguments], bool]) -> Arguments:
    """The arguments of a failing backward with incoming gradients of ones, or of whole numbers, where it fails with
    those as well."""
    failing = found.failing
    if failing is None or failing.worst is None or not failing.worst.replay.incoming:
        return found.arguments
    incoming = failing.worst.replay.incoming.values()
    for change in (np.ones_like, np.rint):
        given = tuple(Leaf(np.asarray(change(widen(array))).astype(array.dtype)) for array in incoming)
        tried = replace(found.arguments, gradients=given)
        if fails(tried):
            return tried
    return found.arguments


def verdict_of(findings: Findings, found: Finding | None, standard: str, *, strict: bool) -> Verdict:
    """The verdict on a search: an error where numbers are wrong, under strict also where a contract is broken; a skip
    where the reference rejected every call."""
    notes = tuple(f"{FUZZED}{line}" for line in lines(findings))
    if found is not None:
        verdict = found.checked.verdict
        reason = f"{found}: {verdict.reason}"
        return replace(verdict, reason=reason, notes=(*verdict.notes, *notes))
    broken = "; ".join(findings.contracts)
    if strict and findings.contracts:
        _, (drawn, each) = next(iter(findings.contracts.items()))
        return Verdict("error", standard, f"{drawn}: {each.contract}", notes=notes)
    if findings.examples == sum(findings.rejected.values()) and not broken:
        why = next(iter(findings.rejected), "no call could be drawn")
        return Verdict("skip", standard, f"the reference rejects every call that was drawn: {why}", "nothing to fuzz")
    if findings.worst is not None:
        return replace(findings.worst.verdict, notes=(*findings.worst.verdict.notes, *notes))
    return Verdict("pass", standard, notes=notes)


def lines(findings: Findings) -> Iterator[str]:
    """What is told of every search: its size, the worst call, broken contracts."""
    yield f"{findings.examples} calls, {sum(findings.rejected.values())} of them rejected by the reference"
    if findings.worst is not None:
        worst = findings.worst
        yield f"worst: {worst.drawn} (seed {worst.drawn.seed}), {worst.share:.2g} of the limit"
    for drawn, each in findings.contracts.values():
        yield f"contract: {drawn}: {each.contract}"
