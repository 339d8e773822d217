"""batch and order: what is a row, in both directions, and where none is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.features.relations.conftest import Ask, broken, found, normal
from tests.support.related import FAULTS

ROWS = ("batch", "order")


def split(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A product that is made of two where there are few rows."""
    if x.shape[0] > 3:
        return (x.unsqueeze(1) * weight).sum(-1)
    half = x.shape[-1] // 2
    return (x[:, :half].unsqueeze(1) * weight[:, :half]).sum(-1) + (x[:, half:].unsqueeze(1) * weight[:, half:]).sum(-1)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_rows_of_a_function_of_elements(ask: Ask, direction: str) -> None:
    verdict = ask("Torch.mul", torch.mul, normal(5, 8), normal(5, 8, seed=1), names=ROWS, direction=direction)
    assert {name: each.verdict for name, each in found(verdict).items()} == {"batch": "pass", "order": "pass"}
    # Three rows alone, one among copies, and chunks with more than one row, of both dimensions.
    assert [each.metrics["runs"] for each in found(verdict).values()] == [11, 4]


def test_what_is_broadcast_stays_whole(ask: Ask) -> None:
    verdict = ask("Torch.add", torch.add, normal(5, 1), normal(1, 8, seed=1), names=ROWS)
    assert [each.verdict for each in found(verdict).values()] == ["pass", "pass"]


def test_the_gradients_of_a_product_split_by_its_rows(ask: Ask) -> None:
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, weight)
            return split(x, weight)

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            x, weight = ctx.saved_tensors
            return split(gradient, weight.t().contiguous()), gradient.t() @ x

    calls = {"Functional.linear": lambda x, weight, bias=None: Split.apply(x, weight)}
    made = normal(6, 64), normal(48, 64, seed=1)
    verdict = ask("Functional.linear", F.linear, *made, names=ROWS, calls=calls, direction="backward")
    assert broken(verdict) == {"batch": "warning"}
    assert "grad.input.0: " in found(verdict)["batch"].reason


# A call, rows of the project's, and why it is asked nothing.
SKIPPED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "one row": (
        ("Functional.linear", F.linear, normal(1, 8), normal(4, 8, seed=1)), {},
        "no argument has a dimension with two rows",
    ),
    "a dimension that is not there": (
        ("Functional.relu", F.relu, normal(3, 4)), {"input": 4}, "input: a tensor of 2 dimensions has no dimension 4",
    ),
    "a sum of all": (
        ("Torch.sum", torch.sum, normal(3, 6)), {}, "input: the call names no dim, so that all of it is one row",
    ),
    # The row is wrong, and no kernel.
    "rows that know of one another": (
        ("Functional.softmax", F.softmax, normal(3, 6), -1), {"input": 1}, "they know of one another",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_a_call_without_rows_is_a_skip(ask: Ask, name: str) -> None:
    call, batch, reason = SKIPPED[name]
    verdict = ask(
        *call, names=("batch",) if batch == {"input": 1} else ROWS, rows={call[0]: {"batch": batch}} if batch else {}
    )
    assert verdict.verdict == "pass"
    for each in found(verdict).values():
        assert each.verdict == "skip"
        assert reason in each.reason


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
