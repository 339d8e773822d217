"""What a run may ask of a case besides its verdict: time and memory. This room asks; the feature `timing` measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pytest_probe.check.replay import Replay
from pytest_probe.model.arguments import Leaf
from pytest_probe.model.case import Case
from pytest_probe.model.measurement import CaseMemory, CaseTime

if TYPE_CHECKING:
    from pytest_probe.check.conditions import Setup
    from pytest_probe.check.runner import CaseRunner


class MeasurableCall(Protocol):
    """The call of a case as the device makes it."""

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        """Its tensor arguments by name."""

    def time(self) -> CaseTime | None:
        """Its time, measured on new copies of its inputs; None where no time is asked for."""

    def memory(self) -> CaseMemory | None:
        """Its memory; None where none is asked for."""


class Measuring(Protocol):
    """What finds the call of a case to measure."""

    def of_replay(self, case: Case, replay: Replay, setup: Setup) -> MeasurableCall:
        """That of a case whose record ran, for its results to be judged. Raises DeviceRaised where it has no
        gradients."""

    def alone(self, case: Case, runner: CaseRunner) -> MeasurableCall:
        """That of a case of which nothing runs but the device. Raises Unsupported or RecordError."""
