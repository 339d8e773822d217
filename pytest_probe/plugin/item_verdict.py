"""A case between its verdict and its result: what features judge further, alike for an item of a dump and for a check
of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import CaseOutcome
from pytest_probe.model.baseline import Compared
from pytest_probe.model.dump import Frame
from pytest_probe.model.result import PortableId, number
from pytest_probe.model.verdict import SLOWER, Verdict
from pytest_probe.plugin.reproduce import save
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports import terminal

if TYPE_CHECKING:
    from pytest_probe.check.digits import Digits
    from pytest_probe.model.details import Details


class Regression(Struct, frozen=True):
    """Why a case fails, whatever its verdict is: in one line, as a heading, and the lines that show it."""

    reason: str
    heading: str
    table: Sequence[str]


class ItemVerdict(Struct):
    """A case, to which features give another verdict and the rest.

    api is the name that its result has, file gives where its tensors may go, command what runs it again. compared:
    with the baseline; known: may it fail, since it did before? details: what a page shows of it. digits: how many are
    right, where -v shows them.
    """

    checked: CaseOutcome
    verdict: Verdict
    identity: PortableId
    api: str
    file: Callable[[], Path]
    command: Callable[[], str]
    compared: Compared | None = None
    regression: Regression | None = None
    known: bool = False
    details: Details | None = None
    digits: Sequence[Digits] = ()

    def by_features(self, probe: ProcessSession, *notes: str) -> ItemVerdict:
        """Let the run's features judge it, and save its tensors where the run asks for them."""
        if probe.config.get_verbosity() > 0 and self.verdict.verdict != "skip":
            from pytest_probe.check.digits import digits_of

            self.digits = digits_of(self.checked, probe.checker)
        for feature in probe.features:
            if self.verdict.verdict in feature.judges:
                feature.judge(self)
        for note in filter(None, notes):
            self.verdict = replace(self.verdict, notes=(*self.verdict.notes, note))
        if self.saves(probe):
            self.verdict = save(probe, self.checked, self.verdict, self.file())
        return self

    @property
    def message(self) -> str:
        """What -v shows of the output that has the fewest right digits: these, and the noise ratio."""
        least = min(self.digits, key=lambda each: each.right - each.most, default=None)
        if least is None:
            return ""
        metrics = next((each.metrics for each in self.verdict.outputs if each.name == least.output), {})
        if "noise_ratio" not in metrics:
            return least.description
        ratio, limit = number(metrics["noise_ratio"]), number(metrics["noise_ratio_limit"])
        return f"{least.description}, noise ratio {ratio:.3g} of {limit:.3g}"

    def saves(self, probe: ProcessSession) -> bool:
        """Are its tensors kept? A case that is slower alone, or that did not run, has none that say why."""
        if self.checked.worst is None or self.verdict.kind == SLOWER:
            return False
        if probe.settings.save == "all":
            return self.verdict.verdict != "skip"
        return probe.settings.save == "failing" and self.fails(strict=probe.settings.strict)

    def fails(self, *, strict: bool) -> bool:
        return self.verdict.fails(strict) or self.regression is not None

    def reason(self, of_verdict: str) -> str:
        """Why it fails, in one line; of_verdict is what the verdict says."""
        return of_verdict if self.verdict.verdict == "error" or self.regression is None else self.regression.reason

    def text(
        self,
        probe: ProcessSession,
        *,
        name: str,
        device: str,
        frame: Frame | None = None,
        library: Frame | None = None,
        module: str = "",
        command: str = "",
    ) -> str:
        """The report of a case that failed."""
        worse = self.regression
        return terminal.failure(
            self.verdict,
            name=name,
            device=device,
            frame=frame,
            library=library,
            module=module,
            saved=str(self.file()) if self.saves(probe) else "",
            command=command,
            gate=("", ()) if worse is None else (worse.heading, worse.table),
            whole=probe.verbose,
            width=probe.width,
        )
