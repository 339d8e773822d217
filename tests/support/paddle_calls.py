"""Calls of Paddle's as a dump records them, through the checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_probe.check import Case, CaseOutcome, Checker
from pytest_probe.model.dump import Call, Direction, Dump, Record, Surroundings, TensorSpec
from pytest_probe.model.verdict import Verdict


def tensor(*shape: int, dtype: str = "float32", **statistics: Any) -> TensorSpec:
    return TensorSpec(dtype, shape, requires_grad=dtype.startswith(("float", "bfloat", "complex")), **statistics)


def integers(*shape: int, **statistics: Any) -> TensorSpec:
    return tensor(*shape, dtype="int64", **statistics)


def checked(checker: Checker, api: str, *args: Any, **kwargs: Any) -> dict[Direction, Verdict]:
    """The verdicts on a recorded call ("nn.functional.relu"), by direction."""
    record = Record(f"paddle.{api}.0", "paddle", api, 0, b"", b"")
    call = Call(args, kwargs, None, (), surroundings=Surroundings())
    dump = Dump(Path("recorded"), "paddle", "", "", (record,), lambda _: call, lambda _: ())
    last: CaseOutcome | None = None
    found: dict[Direction, Verdict] = {}
    for direction in record.directions:
        last = checker.run(Case(dump, record, direction), last)
        found[direction] = last.verdict
    return found
