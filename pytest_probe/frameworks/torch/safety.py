"""PyTorch: calls whose kernels do not check what they are given, and end the process or read memory that is not
theirs where it is wrong.

A dump is untrusted, so it is checked here. Many of these calls do not die but return what they found in memory, so a
process of their own would not show them; and an accelerator may not notice what a CPU's kernel refuses. Which calls
these are, benchmarks/crashing_calls.py finds.

These are checks of arguments, and no list of what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch._prims_common

from pytest_probe.errors import UnsafeArguments
from pytest_probe.model.dump import leaves
from pytest_probe.model.run import BoundCall, Leaf

# Kernels over lists of tensors: they walk along all lists by the length and the sizes of the first.
_LISTED = ("_foreach_", "_fused_")
# Lists of fused optimisers that are empty where another argument does not ask for them, and that of the steps so far.
_OPTIONAL = {"max_exp_avg_sqs": "amsgrad", "momentum_buffer_list": "momentum"}
_STEPS = "state_steps"
# Parts of quantisation libraries, which read packed memory as it is given.
_PACKED = ("fbgemm_", "quantized_")
# Of the names of all these, which CHECKS does not have.
PREFIXES = (*_LISTED, *_PACKED)


def check_arguments(bound: BoundCall) -> None:
    """Raises UnsafeArguments where a call may end the process."""
    name = bound.api.rpartition(".")[2]
    if bound.native and name.startswith(_PACKED):
        raise UnsafeArguments(
            f"{bound.api}: found a part of a quantisation library, whose kernels do not check the memory that they are "
            "given, expected an API that does; to run it all the same register a function for it"
        )
    check = _lists if name.startswith(_LISTED) else CHECKS.get(bound.name)
    problem = next(check(bound), None) if check is not None else None
    if problem is not None:
        raise UnsafeArguments(f"{bound.api}: found {problem}; its kernel would not check that, and may end the process")


def check_backward(outputs: Iterable[torch.Tensor]) -> None:
    """Raises UnsafeArguments where the backward from these outputs may end the process. The kernel of group_norm writes
    the gradient of an input with its channels last, also where nobody asked for one."""
    waiting, seen = [output.grad_fn for output in outputs if output.grad_fn is not None], set[Any]()
    while waiting:
        node: Any = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        following = [after for after, _ in node.next_functions]
        if node.name() == "NativeGroupNormBackward0" and following[0] is None and _channels_last(node._saved_input):
            raise UnsafeArguments(
                "the backward of group_norm: found an input with its channels last that requires no grad, expected one "
                "that does, or another layout; its kernel ends the process"
            )
        waiting += [after for after in following if after is not None]


def _channels_last(tensor: torch.Tensor) -> bool:
    usual = torch.contiguous_format
    return tensor.device.type == "cpu" and torch._prims_common.suggest_memory_format(tensor) is not usual


def _lists(bound: BoundCall) -> Iterator[str]:
    lists = {name: value for name, value in bound.given.items() if isinstance(value, (list, tuple))}
    for name, wanting in _OPTIONAL.items():
        if name in lists and not lists[name] and not bound.argument(wanting):
            del lists[name]
    if len({len(value) for value in lists.values()}) > 1:
        lengths = ", ".join(f"{bound.paths[name]} of {len(value)}" for name, value in lists.items())
        yield f"lists of other lengths, {lengths}, expected one length"
        return
    steps = lists.pop(_STEPS, ())
    if any(not isinstance(step, Leaf) or step.array.size != 1 for step in steps):
        yield f"{bound.paths[_STEPS]} with something else than single numbers, expected a tensor of one for each"
    # Those of foreach are broadcast.
    for place, values in enumerate(zip(*lists.values(), strict=True) if "fused" in bound.api else ()):
        shapes = [str(list(value.array.shape)) for value in values if isinstance(value, Leaf)]
        if len(set(shapes)) > 1:
            yield f"shapes {' and '.join(shapes)} at place {place} of the lists, expected one shape"


def _segments(bound: BoundCall) -> Iterator[str]:
    data, axis = bound.array("input"), bound.argument("axis")
    if data is None or type(axis) is not int or not 0 <= axis < data.ndim:
        yield f"axis {axis!r}, expected one of the data's"
        return
    for name in ("lengths", "offsets"):
        array = bound.array(name)
        if array is None:
            continue
        if array.dtype.kind not in "iu" or array.shape[:-1] != data.shape[:axis] or not array.ndim:
            found = f"{name} of {array.dtype} and shape {list(array.shape)}"
            yield f"{found}, expected integers for each of the data's rows"
            return
        # As float64, which does not wrap around.
        steps = array.astype(np.float64) if name == "lengths" else np.diff(array.astype(np.float64))
        ends = steps.cumsum(axis=-1) if name == "lengths" else array
        if not ends.size or (steps < 0).any() or (ends < 0).any() or (ends > data.shape[axis]).any():
            yield f"{name} that do not rise from 0 to {data.shape[axis]}, the data's size along axis {axis}"


def _pivots(bound: BoundCall) -> Iterator[str]:
    matrix, pivots = bound.array("LU"), bound.array("pivots")
    if matrix is None or pivots is None:
        return
    if matrix.ndim < 2 or pivots.shape != (*matrix.shape[:-2], min(matrix.shape[-2:])):
        yield f"pivots of shape {list(pivots.shape)} for a matrix of {list(matrix.shape)}, expected one for each column"
    elif pivots.size and not 1 <= pivots.min() <= pivots.max() <= matrix.shape[-2]:
        yield f"pivots from {pivots.min()} to {pivots.max()}, expected numbers from 1 to {matrix.shape[-2]}"


def _batch_norm(bound: BoundCall) -> Iterator[str]:
    data = bound.array("input")
    if data is None or data.ndim < 2 or not data.size:
        yield "an input without elements or channels, expected at least one of each"
        return
    for name in ("weight", "bias", "running_mean", "running_var"):
        array = bound.array(name)
        if array is not None and array.shape != data.shape[1:2]:
            yield f"{name} of shape {list(array.shape)}, expected {list(data.shape[1:2])}, one for each channel"
        elif array is None and name.startswith("running") and not bound.argument("training"):
            yield f"no {name} outside of training, expected one"


def _labels(bound: BoundCall) -> Iterator[str]:
    scores, labels = bound.array("log_probs"), bound.array("targets")
    if scores is None or labels is None or not scores.ndim or not labels.size:
        return
    if not 0 <= labels.min() <= labels.max() < scores.shape[-1]:
        yield f"targets from {labels.min()} to {labels.max()}, expected classes from 0 to {scores.shape[-1] - 1}"


def _filled(bound: BoundCall) -> Iterator[str]:
    for name, value in leaves(dict(bound.given)):
        if isinstance(value, Leaf) and not value.array.size:
            yield f"{name} of shape {list(value.array.shape)}, expected a tensor with elements"


# By canonical name: what is wrong with the arguments of a call.
CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {
    "segment_reduce": _segments,
    "lu_unpack": _pivots,
    "native_batch_norm": _batch_norm,
    "batch_norm_update_stats": _batch_norm,
    "ctc_loss": _labels,
    "pdist": _filled,
    "lstsq": _filled,
}
