"""Each planted fault is found by its relation, and by no other; healthy calls break none."""

from __future__ import annotations

import pytest
import torch

from tests.features.relations.conftest import Ask, broken, found
from tests.support.related import FAULTS

DTYPES = [torch.float32, torch.bfloat16]
WARNINGS = ("again", "batch", "order")
# Of float32.
REASONS = {
    "write behind": "memory that the call allocates (1): written 1 element behind its last",
    "write before": "input.0: written 1 element before its first",
    "read behind": "output.0: 96 of 576 elements differ with what lies outside of the arguments",
    "tail": "not written: output.0: 1 of 576 elements differ with what memory was full of",
    "address": "5 of 10 further calls differ, on the memory that other numbers were in: output.0: 576 of 576 elements ",
    "split": "dimension 0: row 0 alone: output.0: 5 of 96 elements differ",
    "order": "dimension 0: rows in reverse: output.0: 316 of 576 elements differ",
    "copy": "in place, output.0: 240 of 576 elements differ",
    "alias": "with input.0 as input.1, too, output.0: 573 of 576 elements differ",
    "out": "into an out, output.0: 576 of 576 elements differ",
    "strides": "with transposed inputs, output.0: 470 of 576 elements differ from the correctly rounded reference; ",
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_relation_alone(ask: Ask, name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    verdict = ask(fault.api, fault.function, *fault.args(dtype), calls=fault.calls())
    outcome = "warning" if fault.relation in WARNINGS else "error"
    assert broken(verdict) == {fault.relation: outcome}, {key: each.reason for key, each in found(verdict).items()}
    assert verdict.verdict in (outcome, "error")
    reason = found(verdict)[fault.relation].reason
    # What is not written may be wrong as well.
    assert name == "tail" or verdict.reason == f"relation.{fault.relation}: {reason}"
    if dtype is torch.float32:
        assert reason.startswith(REASONS[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FAULTS)
def test_the_healthy_function_breaks_none(ask: Ask, name: str, dtype: torch.dtype) -> None:
    fault = FAULTS[name]
    verdict = ask(fault.api, fault.function, *fault.args(dtype))
    assert broken(verdict) == {}
    assert found(verdict)[fault.relation].verdict == "pass", found(verdict)[fault.relation].reason
    assert verdict.verdict == "pass"
