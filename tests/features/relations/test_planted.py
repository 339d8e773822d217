"""Each planted fault is found by its relation, and by no other; healthy calls break none."""

from __future__ import annotations

import pytest
import torch

from tests.features.relations.conftest import Ask, broken, found
from tests.support.related import FAULTS

DTYPES = [torch.float32, torch.bfloat16]
WARNINGS = ("again", "batch", "order")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_relation_alone(ask: Ask, name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    verdict = ask(fault.api, fault.function, *fault.args(dtype), calls=fault.calls())
    outcome = "warning" if fault.relation in WARNINGS else "error"
    assert broken(verdict) == {fault.relation: outcome}, {key: each.reason for key, each in found(verdict).items()}
    assert verdict.verdict in (outcome, "error")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FAULTS)
def test_the_healthy_function_breaks_none(ask: Ask, name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    verdict = ask(fault.api, fault.function, *fault.args(dtype))
    assert broken(verdict) == {}
    assert found(verdict)[fault.relation].verdict == "pass", found(verdict)[fault.relation].reason
    assert verdict.verdict == "pass"
