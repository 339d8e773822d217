"""One drawn call, judged in each direction as a recorded one is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_probe.core.arguments import Arguments
from pytest_probe.core.case import Case, Demands
from pytest_probe.core.dump import Call, Direction, Dump, Record
from pytest_probe.core.verdict import OutputVerdict, Verdict
from pytest_probe.errors import HookFailed, NoReference
from pytest_probe.execution.checked import Checked
from pytest_probe.execution.checker import Checker
from pytest_probe.execution.fuzzing.exact_inputs import by_ulp

# What the outputs of a drawn call have beside their numbers.
DEMANDS = Demands(dtype=True, strides=True, drawn=True)


@dataclass(frozen=True)
class Target:
    """An API as cases run it: name is the item's, path that of its dump, directions those that are asked for; ulp: the
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
        return Case(dump, record, direction, None, arguments=arguments, demands=DEMANDS)


@dataclass(frozen=True)
class Judged:
    """What became of a call: checked in each direction, unless the reference rejected it."""

    call: Call
    arguments: Arguments
    checked: tuple[Checked, ...] = ()
    rejected: str = ""
    contract: str = ""

    @property
    def failing(self) -> Checked | None:
        """What has a wrong number, or met code of the project's that raised; None where all is right."""
        return next((each for each in self.checked if _fails(each)), None)

    @property
    def worst(self) -> tuple[float, Verdict]:
        """The largest share of a limit that an output took, 0 where none has a limit, with the verdict."""
        shares = [(max(map(_share, each.verdict.outputs), default=0.0), each.verdict) for each in self.checked]
        return max(shares, key=lambda share: share[0])


def judged(checker: Checker, target: Target, call: Call, arguments: Arguments) -> Judged:
    """Run a call in the directions that are asked for."""
    forward_case = target.case(call, arguments, "forward")
    forward = checker.run(forward_case)
    forward = forward if target.ulp is None else by_ulp(forward, target.ulp)
    found = Judged(call, arguments, (forward,))
    if forward.verdict.verdict == "skip":
        rejected = f"{forward.verdict.kind}: {forward.verdict.reason}"
        accepted = forward.verdict.kind == NoReference.kind
        contract = f"the device accepts what the reference rejects: {forward.verdict.reason}" if accepted else ""
        return Judged(call, arguments, rejected=rejected, contract=contract)
    if "backward" in target.directions and forward.forward is not None and not broken_contract(forward.verdict):
        case = Case(forward_case.dump, forward_case.record, "backward", None, None, arguments, DEMANDS)
        backward = checker.run(case, forward)
        if backward.verdict.verdict != "skip":
            found = Judged(call, arguments, (forward, backward))
    if "forward" not in target.directions:
        found = Judged(call, arguments, found.checked[1:])
    return Judged(call, arguments, found.checked, contract=_contract(found.checked))


def _fails(checked: Checked) -> bool:
    return wrong_numbers(checked.verdict) or isinstance(checked.forward, HookFailed)


def wrong_numbers(verdict: Verdict) -> bool:
    """Is it an error that is more than one of shapes, dtypes, strides and exceptions?"""
    return any(output.verdict == "error" and output.standard != "structure" for output in verdict.outputs)


def broken_contract(verdict: Verdict) -> str:
    """In what the device's call differs from the reference's beside numbers; "" where it does not."""
    if verdict.verdict != "error":
        return ""
    if not verdict.outputs:
        return verdict.reason
    broken = (each for each in verdict.outputs if each.verdict == "error" and each.standard == "structure")
    return next((f"{each.name}: {each.reason}" for each in broken), "")


def _contract(checked: tuple[Checked, ...]) -> str:
    return next(filter(None, (broken_contract(each.verdict) for each in checked)), "")


def _share(output: OutputVerdict) -> float:
    ratio, limit = output.metrics.get("noise_ratio"), output.metrics.get("noise_ratio_limit")
    if not isinstance(ratio, (int, float)) or not isinstance(limit, (int, float)) or not limit:
        return 0.0
    # What passes for another reason than its limit may be above it.
    return min(1.0, float(ratio) / float(limit))
