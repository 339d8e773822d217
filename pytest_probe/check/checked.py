"""What checking a case leaves, and a record's call made ready for a caller.

The item's owner keeps `Checked`, and nobody else keeps anything of a case. So peak memory is that of the largest case.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.measuring import MeasurableCall
from pytest_probe.check.replay import Reference, Replay
from pytest_probe.check.structure import Sides
from pytest_probe.errors import ProbeError
from pytest_probe.model.case import Case
from pytest_probe.model.verdict import Verdict

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Bound


class Checked(Struct, frozen=True):
    """What checking a case leaves, for whoever keeps it until the next case.

    forward is the run of the record that its backward case shares, or why there is none; None where it is used up.
    worst holds both sides of the worst output, which `save` writes; cause is the error of the function, or of the
    reference, that the verdict speaks of. subject is the call that was measured, where the run measures.
    """

    case: Case
    verdict: Verdict
    forward: Replay | ProbeError | None = None
    worst: Sides | None = None
    cause: BaseException | None = None
    subject: MeasurableCall | None = None

    def serves(self, case: Case) -> bool:
        """Is the run that it keeps that of another case, too: the same record in the same dtype, the other direction?

        A case that is run again shall run.
        """
        own = self.case
        same = own.dump is case.dump and own.record.name == case.record.name and own.dtype == case.dtype
        return same and own.direction != case.direction and self.forward is not None

    def without_run(self) -> Checked:
        """It without the run for its sibling, whose tensors the device has back."""
        for replay in (self.forward, None if self.worst is None else self.worst.replay):
            if isinstance(replay, Replay):
                replay.actual.release()
        return replace(self, forward=None)

    def save(self, path: Path) -> None:
        """Write inputs, outputs and gradients of both sides, numbers as arrays without dimensions. Raises OSError."""
        if self.worst is None:
            return
        replay = self.worst.replay
        arrays = {name: leaf.array for name, leaf in replay.reference.leaves.items()}
        sides = (("seed", replay.incoming), ("actual", self.worst.actual), ("expected", self.worst.expected))
        for side, values in sides:
            numbers = {f"{side}.{name}": np.asarray(value) for name, value in values.items() if _is_number(value)}
            arrays |= numbers
        framework = replay.reference.framework
        with framework.fixed_state():
            framework.save(path, arrays)

    def script(self, name: str) -> str:
        """The text of a script of that name that makes the call on what `save` wrote again; "" without tensors."""
        if self.worst is None:
            return ""
        reference = self.worst.replay.reference
        candidate, sampled = reference.candidate, self.worst.sample is not None
        path = "" if sampled or candidate.replaced or self.case.pair is not None else candidate.path
        wanted = sorted(name.removeprefix("grad.") for name in self.worst.expected if name.startswith("grad."))
        return reference.framework.script(self.case.id, name, path, candidate.arguments, wanted)


def _is_number(value: Any) -> bool:
    """An array, or a number that the framework's tensors hold."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, (np.ndarray, float, complex))


class PreparedCall(Struct, frozen=True):
    """A record's arguments on the device, for a call that a test makes: tensors of its own, which it may write to."""

    case: Case
    reference: Reference
    bound: Bound
