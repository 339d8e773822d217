"""torch's own samples of its operators, from the tables that its tests use."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.testing._internal import common_methods_invocations as invocations

from benchmarks.quality.samples import LeftOut, Sample, Samples, Wish, of_function, seed_of
from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.torch.framework import TorchFramework

# What OpInfo calls by another name than it says.
MISNAMED = {"rand_like": "Torch.randn_like", "normal.in_place": "Tensor.normal_"}
# Kernels of torch's CPU that are not healthy: exp of a 5 x 5 matrix of numbers near 0.1 is 10^30 in bfloat16.
WRONG = {"matrix_exp": ("bfloat16", "float16")}
# What OpInfo calls otherwise than `torch` does: with the deviation before the mean.
OTHERWISE = ("normal.number_mean",)
NAMESPACES = (("nn.functional.", "Functional."), ("", "Torch."), ("", "Tensor."))


def samples(wish: Wish) -> Samples:
    """Some of each operator's samples, spread over all that it has, and its in-place variant on the first."""
    dtype = getattr(torch, wish.dtype)
    for op in invocations.op_db:
        label = ".".join(part for part in (op.name, op.variant_test_name) if part)
        api = MISNAMED.get(label) or api_of(op.name)
        if not (wish.takes(api) or wish.takes(label)):
            continue
        if label in OTHERWISE:
            yield LeftOut(label, "its arguments stand in another order")
            continue
        if dtype not in op.supported_dtypes("cpu"):
            yield LeftOut(label, f"no {wish.dtype} on the CPU")
            continue
        if wish.dtype in WRONG.get(label, ()):
            yield LeftOut(label, f"{label}, which the CPU's 16-bit kernel gets wrong")
            continue
        with mock.patch.object(invocations, "wrapper_set_seed", _unseeded):
            yield from _of_op(op, label, api, dtype, wish)


def _unseeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of what gives both sides the same random numbers, where they come alike at all."""
    return function(*args, **kwargs)


def _of_op(op: Any, label: str, api: str, dtype: torch.dtype, wish: Wish) -> Samples:
    torch.manual_seed(seed_of(label))
    random.seed(seed_of(label))
    np.random.seed(seed_of(label) % 2**32)
    try:
        found = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception as error:
        yield LeftOut(label, f"its samples cannot be made: {type(error).__name__}")
        return
    gradient = bool(op.supports_autograd)
    count = min(wish.count, len(found))
    for place in (index * len(found) // count for index in range(count)):
        yield _taken(op.op, f"{label} {place}", api, found[place], gradient, wish)
    if op.inplace_variant is not None:
        yield from _in_place(op, label, api, found, wish)


def _in_place(op: Any, label: str, api: str, found: list[Any], wish: Wish) -> Iterator[Sample | LeftOut]:
    fitting = (sample for sample in found if not sample.broadcasts_input and isinstance(sample.input, torch.Tensor))
    sample = next(fitting, None)
    if sample is None:
        return
    try:
        op.inplace_variant(sample.input.clone(), *sample.args, **sample.kwargs)
    except RuntimeError:
        yield LeftOut(label, "its result does not fit in place")
        return
    yield _taken(op.inplace_variant, f"{label} in place", api and f"{api}_", sample, op.supports_autograd, wish)


def _taken(
    function: Callable[..., Any], label: str, api: str, sample: Any, backward: bool, wish: Wish
) -> Sample | LeftOut:
    args = (sample.input, *sample.args)
    return of_function(label, function, args, sample.kwargs, api=api, backward=backward, tiny=wish.tiny)


def api_of(name: str) -> str:
    """The name that a dump has for an operator; "" where no dump can name it, as of private functions."""
    for prefix, namespace in NAMESPACES:
        if name.startswith(prefix):
            space, path = namespace.rstrip("."), name.removeprefix(prefix)
            try:
                TorchFramework().candidates(space, path, {})
            except UnknownAPI:
                continue
            return f"{space}.{path}"
    return ""
