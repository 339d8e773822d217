"""What a search found: calls that fail, shrunk, each with its verdict and a script that makes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from pytest_probe.check.check import Checker
from pytest_probe.check.gradients import generated
from pytest_probe.check.outcome import Checked, PreparedCall
from pytest_probe.features.fuzz.drawn import arguments_text
from pytest_probe.features.fuzz.trial import Judged, Target
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.model.arguments import Arguments, floats_of
from pytest_probe.model.dump import Direction
from pytest_probe.model.fatal_call import FatalCall
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import AnyArray


class Finding(Struct, frozen=True):
    """A call that fails. incoming are the incoming gradients by output, where its backward is what fails; script makes
    the call, "" where it cannot be written down."""

    api: str
    arguments: Arguments
    direction: Direction
    verdict: Verdict
    incoming: Mapping[str, AnyArray] = field(default_factory=dict)
    script: str = ""

    def __str__(self) -> str:
        """The call, its tensors by dtype and shape."""
        return arguments_text(self.api, self.arguments)


def of_numbers(target: Target, found: Judged) -> Finding:
    """The finding of a call that was judged, and has wrong numbers."""
    failing = found.failing
    assert failing is not None
    incoming = failing.worst.replay.incoming if failing.worst is not None else {}
    title = f"{failing.case.id}: {failing.verdict.reason}"
    direction, script = failing.case.direction, _of_sides(failing, title)
    return Finding(target.api, found.arguments, direction, failing.verdict, incoming, script)


def of_contract(checker: Checker, target: Target, found: Judged) -> Finding:
    """The finding of a call that was judged, and breaks a contract."""
    direction: Direction = "backward" if len(found.checked) > 1 else "forward"
    verdict = Verdict("error", checker.conditions.standard, found.contract)
    script = "" if found.rejected else _written(checker, target, found, direction, found.contract)
    return Finding(target.api, found.arguments, direction, verdict, script=script)


def of_fatal(checker: Checker, target: Target, found: Judged, fatal: FatalCall) -> Finding:
    """The finding of a call that ended its process. Nothing of it runs here but its reference."""
    direction = fatal.call.direction
    verdict = Verdict("error", checker.conditions.standard, fatal.reason, fatal.kind)
    script = _written(checker, target, found, direction, fatal.reason)
    return Finding(target.api, found.arguments, direction, verdict, script=script)


def _of_sides(failing: Checked, title: str) -> str:
    sides = failing.worst
    if sides is None:
        return ""
    reference = sides.replay.reference
    candidate = reference.candidate
    wanted = sorted(name.removeprefix("grad.") for name in sides.expected if name.startswith("grad."))
    given = sides.actual.values() if candidate.replaced else ()
    actual = [value for value in given if isinstance(value, np.ndarray)]
    device, incoming = sides.replay.source.name, sides.replay.incoming
    call = LiteralCall(title, device, candidate.path, candidate.arguments, wanted, incoming, actual)
    return reference.framework.literal_script(call)


def _written(checker: Checker, target: Target, found: Judged, direction: Direction, reason: str) -> str:
    """The script of a call whose outputs nobody has: "" for a function of the project's, which no script can name."""
    case = target.case(found.call, found.arguments, direction)
    prepared = checker.prepare(case, gradient=False)
    if not isinstance(prepared, PreparedCall) or prepared.reference.candidate.replaced:
        return ""
    reference = prepared.reference
    incoming: dict[str, AnyArray] = {}
    if direction == "backward":
        dtype = next(iter(floats_of(reference.leaves).values()), np.dtype(np.float32))
        for name in reference.run.differentiable:
            like = np.empty(reference.run.outputs[name].shape, dtype)
            incoming[name] = generated(case, name, like, checker.conditions.seed)
    wanted = sorted(reference.wanted.names) if incoming and reference.wanted is not None else []
    device = checker.setup_of(target.framework).device_name
    title, candidate = f"{case.id}: {reason}", reference.candidate
    call = LiteralCall(title, device, candidate.path, candidate.arguments, wanted, incoming)
    return reference.framework.literal_script(call)
