"""Relations asked of one call, without pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_probe.features.relations.checks import Relations
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.options import RELATION_NAMES
from pytest_probe.registry import Registry
from tests.check.conftest import Make

Ask = Callable[..., Verdict]


def found(verdict: Verdict) -> dict[str, OutputVerdict]:
    """What was found on each relation, by its name."""
    named = (output for output in verdict.outputs if output.name.startswith("relation."))
    return {output.name.removeprefix("relation."): output for output in named}


def broken(verdict: Verdict) -> dict[str, str]:
    """The outcomes of relations that do not hold."""
    return {name: each.verdict for name, each in found(verdict).items() if each.verdict in ("warning", "error")}


@pytest.fixture
def ask(bench: Make) -> Ask:
    """ask(api, function, *args): the verdict on a call with those on relations."""

    def asked(
        api: str,
        function: Any,
        *args: Any,
        names: Sequence[str] = RELATION_NAMES,
        calls: Mapping[str, Any] | None = None,
        rows: Mapping[str, Any] | None = None,
        direction: str = "forward",
        **further: Any,
    ) -> Verdict:
        registry = Registry(calls=dict(calls or {}), relations=dict(rows or {}))
        made = bench(api, function, *args, registry=registry, backward=direction == "backward", **further)
        checked = made.run("forward")
        if direction == "backward":
            checked = made.run("backward")
        return Relations(made.checker, names).of(checked).verdict

    return asked


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
