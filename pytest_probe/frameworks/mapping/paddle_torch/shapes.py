"""What moves, repeats, picks or makes elements, where no single API of torch's
makes Paddle's calls. Each function takes Paddle's arguments, and torch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from pytest_probe.frameworks.mapping.paddle_torch import ints, number, refused

# torch.Tensor: what most of its functions return is not said.
Tensor: TypeAlias = Any
F = torch.nn.functional


def split(x: Tensor, num_or_sections: Any, axis: Any) -> Any:
    dim = int(axis)
    if not isinstance(num_or_sections, (list, tuple)):
        return x.tensor_split(int(num_or_sections), dim)
    sizes = ints(num_or_sections)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[dim] - sum(sizes) - 1
    return x.split(sizes, dim)


def reshape(x: Tensor, shape: Any) -> Tensor:
    sizes = ints(shape)
    return x.reshape([x.shape[place] if size == 0 and x.numel() else size for place, size in enumerate(sizes)])


def unsqueeze(x: Tensor, axis: Any) -> Tensor:
    for dim in ints(axis):
        x = x.unsqueeze(dim)
    return x


def diag(x: Tensor, offset: int, padding_value: float) -> Tensor:
    result = torch.diag(x, offset)
    if x.dim() != 1 or not padding_value:
        return result
    ones = torch.diag(torch.ones_like(x), offset)
    return result + (1 - ones) * padding_value


def fill_diagonal_(x: Tensor, value: float, offset: int, wrap: bool) -> Tensor:
    if not offset:
        return x.fill_diagonal_(value, wrap)
    if x.dim() != 2 or wrap:
        raise refused(f"offset={offset}")
    torch.diagonal(x, offset).fill_(value)
    return x


def pad(x: Tensor, pad: Any, mode: str, value: float, data_format: str | None, pad_from_left_axis: bool) -> Tensor:
    sizes = ints(pad)
    if len(sizes) == 2 * x.dim() and mode == "constant":
        pairs = [(sizes[place], sizes[place + 1]) for place in range(0, len(sizes), 2)]
        order = reversed(pairs) if pad_from_left_axis else iter(pairs)
        return F.pad(x, [size for pair in order for size in pair], value=value)
    last = data_format is not None and not data_format.startswith("NC")
    moved = x.movedim(-1, 1) if last else x
    result = F.pad(moved, sizes, mode, value if mode == "constant" else None)
    return result.movedim(1, -1) if last else result


def unfold(x: Tensor, kernel_sizes: Any, strides: Any, paddings: Any, dilations: Any) -> Tensor:
    if isinstance(paddings, (list, tuple)) and len(paddings) == 4:
        top, left, bottom, right = ints(paddings)
        return F.unfold(F.pad(x, [left, right, top, bottom]), kernel_sizes, dilations, 0, strides)
    return F.unfold(x, kernel_sizes, dilations, paddings, strides)


def slice_scatter(x: Tensor, value: Tensor, axes: Any, starts: Any, ends: Any, strides: Any) -> Tensor:
    result = x.clone()
    result[_index(x, ints(axes), ints(starts), ints(ends), ints(strides))] = value
    return result


def _index(x: Tensor, axes: list[int], starts: list[int], ends: list[int], steps: list[int]) -> tuple[slice, ...]:
    if min(steps, default=1) < 1:
        raise refused("a step below 1", "strides")
    found = [slice(None)] * x.dim()
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        found[axis] = slice(start, end, step)
    return tuple(found)


# Elements that an index names.


def gather(x: Tensor, index: Tensor, axis: Any) -> Tensor:
    dim = 0 if axis is None else int(axis)
    if not index.dim():
        return x.select(dim, 0) if x.shape[dim] == 1 else x.index_select(dim, index.reshape(1)).squeeze(dim)
    return x.index_select(dim, index.reshape(-1))


_REDUCTIONS = {"mul": "prod", "multiply": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


def put_along_axis(
    arr: Tensor, indices: Tensor, values: Any, axis: int, reduce: str, include_self: bool, broadcast: bool
) -> Tensor:
    index = indices.long()
    if broadcast:
        shape = list(arr.shape)
        shape[axis] = index.shape[axis]
        index = index.expand(shape)
    given = values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=arr.dtype)
    source = given.to(arr.dtype).expand(index.shape) if broadcast or not given.dim() else given
    if reduce == "assign":
        return arr.scatter(axis, index, source)
    kind = "sum" if reduce == "add" else _REDUCTIONS[reduce]
    return arr.scatter_reduce(axis, index, source, kind, include_self=include_self)


def scatter(x: Tensor, index: Tensor, updates: Tensor, overwrite: bool) -> Tensor:
    rows = index.long().reshape(-1)
    if overwrite:
        return x.index_copy(0, rows, updates.reshape(len(rows), *x.shape[1:]))
    return x.index_fill(0, rows, 0).index_add(0, rows, updates.reshape(len(rows), *x.shape[1:]))


def nonzero(x: Tensor, as_tuple: bool) -> Any:
    found = torch.nonzero(x)
    return tuple(found.unbind(1)) if as_tuple else found


def embedding(x: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    found = F.embedding(x, weight)
    if padding_idx is None:
        return found
    row = padding_idx if padding_idx >= 0 else len(weight) + padding_idx
    return torch.where((x == row).unsqueeze(-1), torch.zeros_like(found), found)


def getitem(self: Tensor, item: Any) -> Tensor:
    index, flipped = _with_steps(self, item)
    return flipped[index]


def _with_steps(x: Tensor, item: Any) -> tuple[Any, Tensor]:
    """An index without steps below 0, for the tensor flipped where there were some."""
    items = item if isinstance(item, tuple) else (item,)
    found = list[Any]()
    dim = 0
    for each in items:
        if isinstance(each, slice):
            start, stop, step = (None if end is None else int(end) for end in (each.start, each.stop, each.step))
            if step is not None and step < 0:
                if any(isinstance(other, (list, torch.Tensor)) or other in (None, Ellipsis) for other in items):
                    raise refused("a step below 0 together with other indices", "item")
                first, last, _ = slice(start, stop, step).indices(x.shape[dim])
                size = x.shape[dim]
                x = x.flip(dim)
                each = slice(size - 1 - first, size - 1 - last, -step)
            else:
                each = slice(start, stop, step)
        found.append(each.long() if isinstance(each, torch.Tensor) and each.dtype == torch.int32 else each)
        dim += isinstance(each, (slice, int))
    return (tuple(found) if isinstance(item, tuple) else found[0]), x


def setitem(self: Tensor, item: Any, value: Any) -> None:
    index, flipped = _with_steps(self, item)
    if flipped is not self:
        raise refused("a step below 0", "item")
    self[index] = value.to(self.dtype) if isinstance(value, torch.Tensor) else value


_OPERATIONS: Mapping[str, Callable[..., Tensor]] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul}


def send_ue_recv(
    x: Tensor, y: Tensor, src_index: Tensor, dst_index: Tensor, message_op: str, reduce_op: str, out_size: Any
) -> Tensor:
    if message_op not in _OPERATIONS:
        raise refused(f"message_op={message_op!r}")
    messages = _OPERATIONS[message_op](x.index_select(0, src_index.long()), y)
    return _received(messages, dst_index.long(), reduce_op, len(x) if out_size is None else int(out_size))


def send_u_recv(x: Tensor, src_index: Tensor, dst_index: Tensor, reduce_op: str, out_size: Any) -> Tensor:
    messages = x.index_select(0, src_index.long())
    return _received(messages, dst_index.long(), reduce_op, len(x) if out_size is None else int(out_size))


def _received(messages: Tensor, rows: Tensor, reduce_op: str, size: int) -> Tensor:
    kind = {"max": "amax", "min": "amin"}.get(reduce_op, reduce_op)
    into = messages.new_zeros(size, *messages.shape[1:])
    index = rows.reshape(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
    return into.scatter_reduce(0, index, messages, kind, include_self=False)


def sequence_mask(x: Tensor, maxlen: Any, dtype: Any) -> Tensor:
    longest = int(x.max()) if maxlen is None else int(maxlen)
    return (torch.arange(longest) < x.unsqueeze(-1)).to(dtype)


# New tensors.


def full(shape: Any, fill_value: Any, dtype: Any) -> Tensor:
    default = torch.bool if isinstance(fill_value, bool) else torch.get_default_dtype()
    return torch.full(ints(shape), number(fill_value), dtype=default if dtype is None else dtype)


def arange(start: Any, end: Any, step: Any, dtype: Any) -> Tensor:
    first, last = (0, start) if end is None else (start, end)
    return torch.arange(number(first), number(last), number(step), dtype=dtype)


def item(self: Tensor, args: Sequence[int]) -> Any:
    if not args:
        return self.item()
    return self.reshape(-1)[args[0]].item() if len(args) == 1 else self[tuple(args)].item()
