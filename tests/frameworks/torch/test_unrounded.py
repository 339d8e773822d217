"""Steps that round nothing give what torch computes in float64: a formula that is wrong for some arguments would have
errors as large as a fault's, and hide them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from pytest_probe.frameworks.torch import rounding
from pytest_probe.frameworks.torch.sequential_sums import sums_rounded_to
from pytest_probe.standards.tables import classes_of

pytestmark = pytest.mark.slow

# The import above forbids all of the process to set torch's flags.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True

# Samples of each operator, spread over all that it has.
SAMPLES = (1, 3)
# Their kernels compute where a pixel lies, and how much it counts, in float32; or a series.
IN_FLOAT32 = ("interpolate", "upsample", "grid_sample", "affine_grid", "i0e", "i1e")
OPERATORS = [
    op
    for op in op_db
    if torch.float64 in op.supported_dtypes("cpu") and "uninitialised" not in classes_of(op.name.rpartition(".")[2])
]
PARTS = 11
DTYPES = (torch.bfloat16, torch.float16)


class Unrounded(rounding.StepsMode):
    def _round(self, tensor: torch.Tensor, inexact: bool) -> None:
        pass


@pytest.fixture(autouse=True)
def unrounded_sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rounding, "sums_of_cpu", lambda dtype: sums_rounded_to(torch.float64))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


Results: TypeAlias = "list[torch.Tensor] | None"


@pytest.mark.evidence
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("most", SAMPLES)
@pytest.mark.filterwarnings("ignore")
def test_every_operator(part: int, most: int) -> None:
    # Of one sample each operator in one dtype, in turn.
    dtypes = {one: DTYPES if most > 1 else (DTYPES[one % len(DTYPES)],) for one in range(part, len(OPERATORS), PARTS)}
    apart = [name for one, those in dtypes.items() for name in _apart(OPERATORS[one], most, those)]
    assert apart == []


def _apart(op: Any, most: int, dtypes: Sequence[Any]) -> Iterator[str]:
    torch.manual_seed(0)
    every = op.sample_inputs("cpu", torch.float64, requires_grad=False)
    samples = list(every if most > 1 else islice(every, 1))
    bound = 1e-3 if any(part in op.name for part in IN_FLOAT32) else 1e-8
    count = min(most, len(samples))
    for place in (index * len(samples) // count for index in range(count)):
        call = partial(_results, op, (samples[place].input, *samples[place].args), samples[place].kwargs)
        try:
            expected = call(nullcontext())
        except Exception:  # what torch itself cannot do here
            continue
        for dtype in dtypes if expected is not None else ():
            if not _same(expected, call(Unrounded(dtype, fine=False)), bound) and _same(expected, call(nullcontext())):
                yield f"{op.name} {op.variant_test_name} {place} {dtype}"


def _results(
    op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], surroundings: AbstractContextManager[Any]
) -> Results:
    """Outputs, and the gradients of floating arguments; None where the sample is not of plain tensors."""
    given, named = tree_map(_leaf(op.supports_autograd), (args, kwargs))
    tensors = [value for value in tree_leaves((given, named)) if isinstance(value, torch.Tensor)]
    if not all(map(_plain, tensors)):
        return None
    with surroundings:
        outputs = [one for one in tree_leaves(op(*given, **named)) if isinstance(one, torch.Tensor)]
        if not all(map(_plain, outputs)):
            return None
        ends, leaves = ([one for one in group if one.requires_grad] for group in (outputs, tensors))
        if not (ends and leaves):
            return [one.detach() for one in outputs]
        incoming = [
            torch.linspace(-1, 2, one.numel(), dtype=torch.float64).to(one.dtype).view(one.shape) for one in ends
        ]
        found = torch.autograd.grad(ends, leaves, incoming, allow_unused=True)
    gradients = [one for one in found if one is not None]
    return [*(one.detach() for one in outputs), *gradients] if all(map(_plain, gradients)) else None


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() > 0


def _leaf(wants: bool) -> Callable[[Any], Any]:
    def made(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(wants and value.is_floating_point())

    return made


def _same(expected: Results, actual: Results, bound: float = 0.0) -> bool:
    """Relative to each element, a thousandth of the largest, or 1e-4. What draws random numbers is not alike twice."""
    if expected is None or actual is None or len(actual) != len(expected):
        return False
    for one, other in zip(expected, actual, strict=True):
        if one.shape != other.shape:
            return False
        right, found = one.to(torch.complex128), other.to(torch.complex128)
        size = right.abs().nan_to_num(0, 0, 0)
        scale = size + 1e-3 * (size.max() if size.numel() else 0) + 1e-4
        alike = (right == found) | right.isnan()
        if not bool((alike | ((found - right).abs() <= bound * scale)).all()):
            return False
    return True
