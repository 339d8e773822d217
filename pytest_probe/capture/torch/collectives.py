"""torch.distributed's collectives as records: what a rank sent, and what it had received when the program had waited.

The functions of torch.distributed are wrapped, so that a record has the name and the arguments that the program wrote.
All others, of DistributedDataParallel in C++ and of functional collectives, are seen where torch dispatches them to a
kind of device, and get the name of the function that does the same.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from msgspec import Struct
from torch.distributed import distributed_c10d

from pytest_probe.capture.bindings import patched
from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.capture.snapshot import NamedEntry, PlainEntry, Tree
from pytest_probe.capture.torch.functions import Wrapped, wrapped

if TYPE_CHECKING:
    from pytest_probe.capture.torch.hooks import TorchHooks

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
# Where a function of torch.distributed makes a call, whose handle the program may get.
_PUBLIC = distributed_c10d.__file__


class _Dispatched(Struct, frozen=True):
    """A call that torch dispatches, as the function that does the same: its name, arguments, and what it writes to."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    written: Any


class _Open(Struct):
    """A call whose handles the program has not waited for; left are those. given_away: the program waits for a future
    in place of a handle, or C++ does, which gives no sign."""

    entry: NamedEntry | None
    written: Any
    left: list[Any]
    given_away: bool = False


class Collectives:
    """Records collectives while it is open."""

    def __init__(self, recording: TorchHooks) -> None:
        self._recording = recording
        self._inside = threading.local()
        self._open: dict[int, _Open] = {}
        # A record is written when the program has waited.
        self._order = itertools.count()
        self._stack = ExitStack()

    def begin(self) -> None:
        names = [name for name in _WRITTEN if hasattr(dist, name)]
        enter = self._stack.enter_context
        enter(wrapped(dist, "Distributed", names, self._made))
        enter(patched(dist.P2POp, "__init__", _with_plain_function))
        enter(patched(dist.Work, "wait", self._waited))
        enter(patched(dist.Work, "is_completed", self._asked))
        enter(patched(dist.Work, "get_future", self._given_away))
        enter(_dispatched(self._kernel))

    def end(self) -> None:
        """See no more; of calls that nobody has waited for what they were given is recorded."""
        self._stack.close()
        for one in {id(one): one for one in self._open.values()}.values():
            if one.entry is not None:
                # This and the call's own reference, the list's and the argument's: nobody else can wait for it.
                alone = all(sys.getrefcount(work) <= 3 for work in one.left)
                # On other devices a stream, or all of the device, may be waited for in place of a handle.
                on_host = all(tensor.is_cpu for tensor in _tensors(one.written))
                forgotten = alone and not one.given_away and on_host
                _tell(one.entry, waited=False if forgotten else None)
            self._end(one.entry, one.written, known=False)
        self._open.clear()

    def _made(self, name: str, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if getattr(self._inside, "value", False):
            return function(*args, **kwargs)
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        written = given.get(_WRITTEN[name.partition(".")[2]])
        group = given.get("group")
        # Above: this, and Wrapped.__call__.
        entry = self._begin(name, args, kwargs, group, sys._getframe(2))
        with self._recording.away():
            self._inside.value = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside.value = False
        handles = [each for each in (result if isinstance(result, list) else [result]) if isinstance(each, dist.Work)]
        handles = _of_receivers(handles, written)
        if handles:
            self._wait_for(_Open(entry, written, handles))
        else:
            # It is made later, together with others, where its group coalesces.
            coalescing: Any = getattr(distributed_c10d._world, "pg_coalesce_state", {})
            later = (dist.group.WORLD if group is None else group) in coalescing
            self._end(entry, written, known=not later)
        return result

    def _kernel(self, call: _Dispatched, group: Any, make: Callable[[], Any]) -> Any:
        """A call that torch dispatches, inside a function of torch.distributed's or not."""
        if getattr(self._inside, "value", False):
            return make()
        try:
            frame = sys._getframe(2)
        except ValueError:  # no Python code calls, as on a thread of autograd's
            frame = sys._getframe()
        entry = self._begin(f"Distributed.{call.name}", call.args, {**call.kwargs, "group": group}, group, frame)
        result = make()
        handle = result[-1] if isinstance(result, tuple) else result
        work = dist.Work.unbox(handle) if isinstance(handle, torch.ScriptObject) else None
        if work is not None and frame.f_code.co_filename == _PUBLIC:
            self._wait_for(_Open(entry, call.written, [work]))
            return result
        # C++ waits for it, without a sign. Waiting for a single message here could wait for ever.
        alone = call.name in ("send", "recv")
        if work is not None and not alone:
            work.wait()
        self._end(entry, call.written, known=not alone)
        return result

    def _begin(self, name: str, args: Args, kwargs: Kwargs, group: Any, frame: FrameType) -> NamedEntry | None:
        with self._recording.away():
            entry = self._recording.begin_collective(name, args, kwargs, frame)
        if entry is not None and name.rpartition(".")[2] != "batch_isend_irecv":
            group = dist.group.WORLD if group is None else group
            _tell(entry, ranks=dist.get_process_group_ranks(group), backend=dist.get_backend(group))
        if entry is not None:
            _tell(entry, rank=dist.get_rank(), order=next(self._order))
        return entry

    def _end(self, entry: NamedEntry | None, written: Any, *, known: bool = True) -> None:
        with self._recording.away():
            self._recording.end_collective(entry, written if known else None, list(_tensors(written)))

    def _wait_for(self, one: _Open) -> None:
        if one.entry is not None:
            _tell(one.entry, asynchronous=True)
        for work in one.left:
            self._open[id(work)] = one

    def _waited(self, original: Callable[..., Any], work: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(work, *args, **kwargs)
        self._completed(work)
        return result

    def _asked(self, original: Callable[..., bool], work: Any) -> bool:
        completed = original(work)
        if completed:
            self._completed(work)
        return completed

    def _given_away(self, original: Callable[..., Any], work: Any) -> Any:
        if id(work) in self._open:
            self._open[id(work)].given_away = True
        return original(work)

    def _completed(self, work: Any) -> None:
        one = self._open.pop(id(work), None)
        if one is not None:
            one.left = [each for each in one.left if each is not work]
            if not one.left:
                if one.entry is not None:
                    _tell(one.entry, waited=True)
                self._end(one.entry, one.written)


def _tell(entry: NamedEntry, **facts: Any) -> None:
    """Add what our own readers know of a collective."""
    known = {} if not isinstance(entry.body.probe, dict) else entry.body.probe.get("collective", {})
    entry.body.tell("collective", {**known, **facts})


def _of_receivers(handles: list[Any], written: Any) -> list[Any]:
    """The calls that a program waits for to read something: of a batch of messages the receiving ones."""
    messages = written if isinstance(written, list) and written and isinstance(written[0], dist.P2POp) else []
    if len(messages) != len(handles) or not messages:
        return handles
    receiving = (getattr(message.op, "__name__", "") == "irecv" for message in messages)
    return [handle for handle, receives in zip(handles, receiving, strict=True) if receives]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that a call writes to."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dist.P2POp):
        yield value.tensor
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


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


def _group(group: Any) -> Tree:
    ranks = dist.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": _group_id(ranks)}


def _group_id(ranks: list[int]) -> str:
    """msprobe's name of a group: CRC-32 of its ranks as text, 8 hex digits."""
    return f"{zlib.crc32(str(ranks).encode()):08x}"


# What torch dispatches. Lists of tensors have one each: a process has one device.


def _reduction(operation: Any) -> Any:
    return dist.ReduceOp.RedOpType(int(operation.op()))


def _peer(group: Any, rank: int) -> int:
    return dist.get_process_group_ranks(group)[rank]


def _all_reduce_one(group: Any, tensor: Any, _: Any, op: Any, *rest: Any) -> _Dispatched:
    return _Dispatched("all_reduce", (tensor,), {"op": _reduction(op)}, tensor)


def _all_gather_base(group: Any, output: Any, given: Any, *rest: Any) -> _Dispatched:
    return _Dispatched("all_gather_into_tensor", (output, given), {}, output)


def _reduce_scatter_base(group: Any, output: Any, given: Any, _: Any, op: Any, *rest: Any) -> _Dispatched:
    return _Dispatched("reduce_scatter_tensor", (output, given), {"op": _reduction(op)}, output)


def _coalesced(single: Callable[..., _Dispatched], name: str) -> Callable[..., _Dispatched]:
    """Several calls in one; of one it is the call itself."""

    def read(group: Any, *args: Any) -> _Dispatched:
        lists = [arg for arg in args if isinstance(arg, list)]
        if len(lists[0]) == 1:
            return single(group, *(arg[0] if isinstance(arg, list) else arg for arg in args))
        one = single(group, *args)
        return _Dispatched(name, tuple(lists), one.kwargs, lists[0])

    return read


_OPERATORS: Mapping[str, Callable[..., _Dispatched]] = {
    "allreduce_": lambda group, tensors, *rest: _all_reduce_one(group, tensors[0], *rest),
    "broadcast_": lambda group, tensors, _, root, *rest: _Dispatched(
        "broadcast", (tensors[0],), {"src": _peer(group, root)}, tensors[0]
    ),
    "reduce_": lambda group, tensors, _, op, root, *rest: _Dispatched(
        "reduce", (tensors[0],), {"dst": _peer(group, root), "op": _reduction(op)}, tensors[0]
    ),
    "allgather_": lambda group, outputs, inputs, *rest: _Dispatched(
        "all_gather", (outputs[0], inputs[0]), {}, outputs[0]
    ),
    "_allgather_base_": _all_gather_base,
    "reduce_scatter_": lambda group, outputs, inputs, _, op, *rest: _Dispatched(
        "reduce_scatter", (outputs[0], inputs[0]), {"op": _reduction(op)}, outputs[0]
    ),
    "_reduce_scatter_base_": _reduce_scatter_base,
    "allreduce_coalesced_": _coalesced(_all_reduce_one, "all_reduce_coalesced"),
    "allgather_into_tensor_coalesced_": _coalesced(_all_gather_base, "all_gather_into_tensor_coalesced"),
    "reduce_scatter_tensor_coalesced_": _coalesced(_reduce_scatter_base, "reduce_scatter_tensor_coalesced"),
    "alltoall_": lambda group, outputs, inputs, *rest: _Dispatched("all_to_all", (outputs, inputs), {}, outputs),
    "alltoall_base_": lambda group, output, given, _, to, by, *rest: _Dispatched(
        "all_to_all_single", (output, given, list(to) or None, list(by) or None), {}, output
    ),
    "gather_": lambda group, outputs, inputs, _, root, *rest: _Dispatched(
        "gather",
        (inputs[0], outputs[0] if outputs else None),
        {"dst": _peer(group, root)},
        outputs[0] if outputs else None,
    ),
    "scatter_": lambda group, outputs, inputs, _, root, *rest: _Dispatched(
        "scatter", (outputs[0], inputs[0] if inputs else None), {"src": _peer(group, root)}, outputs[0]
    ),
    "send": lambda group, tensors, _, to, *rest: _Dispatched("send", (tensors[0], _peer(group, to)), {}, None),
    "recv_": lambda group, tensors, _, source, *rest: _Dispatched(
        "recv", (tensors[0], _peer(group, source)), {}, tensors[0]
    ),
}


# Every call passes it, on whatever device and under whatever modes, and no operator of these has a kernel there.
_KEY = torch._C.DispatchKey.BackendSelect


@contextmanager
def _dispatched(seen: Callable[[_Dispatched, Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """While this is open seen gets all that torch dispatches, on its way to a device's kernel."""
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    for name, read in _OPERATORS.items():
        if hasattr(torch.ops.c10d, name):
            library.impl(name, _on_the_way(name, read, seen), _KEY.name, with_keyset=True)
    try:
        yield
    finally:
        library._destroy()


def _on_the_way(
    name: str, read: Callable[..., _Dispatched], seen: Callable[[_Dispatched, Any, Callable[[], Any]], Any]
) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, name).default
    place = next(index for index, each in enumerate(operator._schema.arguments) if each.name == "process_group")
    below = torch._C._dispatch_keyset_full_after(_KEY)

    def kernel(keys: Any, *args: Any) -> Any:
        # What stands behind the group is read with the group in between, as it is given. To dispatch on lets go of the
        # interpreter's lock, which threads of the backend need.
        group = dist.ProcessGroup.unbox(args[place])
        return seen(read(group, *args), group, lambda: operator.redispatch(keys & below, *args))

    return kernel
