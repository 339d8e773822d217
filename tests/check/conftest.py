"""A dump with one call, a checker for it, and faults planted in functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import Struct

from pytest_probe.check import Case, CaseOutcome, CaseRuns, Checker, RunRequest
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support.writing import entries, write_dump

Function = Callable[..., Any]
WIDE = (torch.float64, torch.complex128)


class Bench(Struct):
    """A dump, and a checker for it on the CPU, whose runs follow one another as in a session."""

    dump: Dump
    checker: Checker
    runs: CaseRuns

    def case(self, direction: Any = "forward", record: int = 0, dtype: str | None = None) -> Case:
        return Case(self.dump, self.dump.records[record], direction, dtype)

    def run(self, direction: Any = "forward", record: int = 0, dtype: str | None = None) -> CaseOutcome:
        return self.runs.run(self.case(direction, record, dtype))

    def check(self, direction: Any = "forward", record: int = 0, dtype: str | None = None) -> Verdict:
        return self.run(direction, record, dtype).verdict

    def release(self) -> None:
        self.runs.release()


Make = Callable[..., Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Make:
    """bench(name, function, *args, backward=..., edit=...): a dump with one call; options go to the checker."""

    def make(
        name: str,
        function: Function,
        *args: Any,
        backward: bool = False,
        edit: Callable[[dict[str, Any]], None] | None = None,
        registry: Registry | None = None,
        hooks: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Bench:
        data = entries(f"{name}.0", function, *args, backward=backward, **kwargs)
        if edit is not None:
            edit(data)
        made = Checker(
            RunRequest(**{"device": "cpu", **(request or {})}), registry or Registry.default(), **(hooks or {})
        )
        return Bench(read_dump(write_dump(tmp_path, data)), made, CaseRuns(made))

    return make


def narrow_only(wrong: Function) -> Callable[[Function], Function]:
    """A patch that calls wrong(right, *args) for what is narrower than float64, and right otherwise."""

    def patch(right: Function) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            first = args[0][0] if isinstance(args[0], list) else args[0]
            return right(*args, **kwargs) if first.dtype in WIDE else wrong(right, *args, **kwargs)

        return function

    return patch


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Function], None]:
    """plant(owner, name, wrong): from now on the function is wrong on the device."""

    def patch(owner: Any, name: str, wrong: Function) -> None:
        monkeypatch.setattr(owner, name, narrow_only(wrong)(getattr(owner, name)))

    return patch


Plant = Callable[[Any, str, Function], None]


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def failed(verdict: Verdict) -> dict[str, str]:
    return {output.name: output.standard for output in verdict.outputs if output.verdict == "error"}


def judged(verdict: Verdict) -> list[str]:
    return [output.name for output in verdict.outputs]
