"""torch.distributed's collectives as records: what a rank sent and received. A replay cannot make them alone."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from pytest_probe.capture.snapshot import PlainEntry, Tree
from pytest_probe.frameworks.torch.capture.functions import CallHandler, Wrapped, wrapped
from pytest_probe.frameworks.torch.capture.modes import patched

# Collectives, and the parameter that each writes to.
_WRITTEN = {
    "all_reduce": "tensor",
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "output",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_to_all": "output_tensor_list",
    "all_to_all_single": "output",
    "gather": "gather_list",
    "scatter": "tensor",
    "recv": "tensor",
    "irecv": "tensor",
    "send": "",
    "isend": "",
    "barrier": "",
    "batch_isend_irecv": "p2p_op_list",
}


@contextmanager
def collectives(call: CallHandler, distrust: Callable[[Any], None]) -> Iterator[None]:
    """Record collectives while this is open; distrust is called with tensors that they write to."""

    def made(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        results: list[Any] = []

        def run(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            results.append(result)
            written = _written(name.partition(".")[2], function, args, kwargs)
            for tensor in _tensors(written):
                distrust(tensor)
            # Of a call that gives a handle the values are there only when the program has waited for it.
            return written if result is None or isinstance(result, int) else result

        call(name, run, args, kwargs)
        return results[0]

    names = [name for name in _WRITTEN if hasattr(dist, name)]
    with wrapped(dist, "Distributed", names, made), patched(dist.P2POp, "__init__", _with_plain_function):
        yield


def encodings(take: Callable[[Any], Tree]) -> dict[type, Callable[[Any], Tree]]:
    """How the arguments of collectives look in a dump, by their types."""
    return {
        dist.ProcessGroup: _group,
        dist.ReduceOp: lambda value: PlainEntry("torch.distributed.ReduceOp", str(value.op)),
        dist.ReduceOp.RedOpType: lambda value: PlainEntry("torch.distributed.ReduceOp", str(value)),
        dist.P2POp: lambda value: {
            "class_type": "torch.distributed.P2POp",
            "tensor": take(value.tensor),
            "op": value.op.__name__,
            "peer": value.peer,
            "tag": value.tag,
            "group_id": _group_id(dist.get_process_group_ranks(value.group)),
        },
    }


def _with_plain_function(original: Callable[..., None], operation: Any, /, op: Any, *args: Any, **kwargs: Any) -> None:
    """torch.distributed asks of its operations which function they are, and means its own."""
    original(operation, op.function if isinstance(op, Wrapped) else op, *args, **kwargs)


def _written(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    return given.get(_WRITTEN[name])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dist.P2POp):
        yield value.tensor
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _group(group: Any) -> Tree:
    ranks = dist.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": _group_id(ranks)}


def _group_id(ranks: list[int]) -> str:
    """msprobe's name of a group: CRC-32 of its ranks as text, 8 hex digits."""
    return f"{zlib.crc32(str(ranks).encode()):08x}"
