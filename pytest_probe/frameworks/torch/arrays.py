"""PyTorch: tensors from NumPy's arrays and back, and the devices that they lie on: their memory and their clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.autograd import profiler

from pytest_probe.errors import Unsupported, UnsupportedDtype
from pytest_probe.model.measurement import Clock, EventClock, HostClock
from pytest_probe.model.run import Device, MemoryUse
from pytest_probe.numerics.arrays import contiguous, layout, span
from pytest_probe.numerics.dtypes import PACKED, numpy_dtype
from pytest_probe.system.machine import last_level_cache as cache_of_processor
from pytest_probe.system.machine import processor
from pytest_probe.user_errors import MemoryErrors, causes, message_of

# NumPy has none of these: they cross as integers of the same width.
_CARRIERS: Mapping[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
if hasattr(torch, "float8_e8m0fnu"):  # since torch 2.7
    _CARRIERS = {**_CARRIERS, torch.float8_e8m0fnu: (torch.uint8, np.dtype(ml_dtypes.float8_e8m0fnu))}
FLOAT4: torch.dtype | None = getattr(torch, PACKED, None)  # since torch 2.8
if FLOAT4 is not None:
    _CARRIERS = {**_CARRIERS, FLOAT4: (torch.uint8, numpy_dtype(PACKED))}
_TO_TORCH = {own: (carrier, dtype) for dtype, (carrier, own) in _CARRIERS.items()}
TORCH_COMPLEX = {"float64": torch.complex128, "float32": torch.complex64}


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor of its own memory, which torch may resize, with the array's values and dtype."""
    return _on_memory_of(array).clone()


def to_wide_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The same with floats as dtype (complex: of twice that width), copied once."""
    narrow = _on_memory_of(array)
    wide = widened(narrow, dtype)
    return narrow.clone() if wide is narrow else wide


def _on_memory_of(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory; on a copy where that is not contiguous."""
    plain = contiguous(array)
    special = _TO_TORCH.get(plain.dtype)
    if special is None:
        return torch.from_numpy(plain)
    carrier, dtype = special
    return torch.from_numpy(plain.view(np.int16 if carrier is torch.int16 else np.uint8)).view(dtype)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, in its dtype. Raises Unsupported where NumPy has no place for them."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {tensor.layout}", "layout not supported")
    if tensor.is_quantized:
        raise Unsupported("a quantized tensor", "layout not supported")
    if tensor.dtype is torch.complex32:
        raise UnsupportedDtype("a tensor of dtype complex32, which NumPy does not have")
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    elif tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    special = _CARRIERS.get(tensor.dtype)
    if special is None:
        return np.asarray(tensor.numpy())
    carrier, own = special
    return np.asarray(tensor.view(carrier).numpy().view(own))


# Dtypes with a NaN that every device can fill memory with.
_WITH_NAN = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128))


def widened(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The tensor with floats as dtype (complex: of twice that width); integers, booleans and packed float4 as they
    are."""
    if tensor.dtype is FLOAT4:
        return tensor
    if tensor.is_complex():
        return tensor.to(TORCH_COMPLEX[dtype])
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def in_order(tensor: torch.Tensor, place: str | torch.device) -> torch.Tensor:
    """A contiguous copy at a place, which a device's stream makes: it may come later."""
    if tensor.dtype is FLOAT4:  # torch copies its bytes alone
        return in_order(tensor.view(torch.uint8), place).view(tensor.dtype)
    return tensor.detach().to(place, copy=True, memory_format=torch.contiguous_format, non_blocking=True)


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...] | None, offset: int) -> torch.Tensor:
    """The tensor with these strides, None: in order, in memory of its own that begins so many elements before it; a
    stride of 0 is an expanded dimension."""
    if tensor.dtype is FLOAT4:
        return laid_out(tensor.view(torch.uint8), strides, offset).view(tensor.dtype)
    expanded = [dim for dim, stride in enumerate(strides or ()) if stride == 0 and tensor.shape[dim]]
    own = tensor
    for dim in expanded:
        own = own.narrow(dim, 0, 1)
    made = _room(own, own.contiguous().stride() if strides is None else strides, offset).copy_(own)
    return made.expand(tensor.shape) if expanded else made


def lying_as(array: np.ndarray, move: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A tensor that has an array's values and lies as it does; move takes one to its place and dtype."""
    strides, offset = layout(array)
    if strides is None and not offset:
        return move(to_tensor(array))
    # Moved in the order of the memory, and each element once.
    own = array[tuple(slice(None if step else 1) for step in array.strides)]
    order = sorted(range(own.ndim), key=lambda axis: -own.strides[axis])
    tensor = move(to_tensor(own.transpose(order))).permute(np.argsort(order).tolist())
    if offset or tensor.stride() != strides:
        tensor = laid_out(tensor, strides, offset)
    return tensor.expand(array.shape)


def _room(tensor: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """Memory for a tensor of this shape, dtype and device."""
    reach = span(tensor.shape, strides)
    if not offset and reach <= tensor.numel():
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    # What lies between its elements no kernel may read, and NaN shows who does. What lies before may be read through
    # as_strided: the same on both sides.
    between = math.nan if tensor.dtype in _WITH_NAN else 0
    memory = torch.full((offset + reach,), between, dtype=tensor.dtype, device=tensor.device)
    memory[:offset] = 0
    return memory.as_strided(tensor.shape, strides, offset)


def copied(tensor: torch.Tensor, strides: tuple[int, ...] | None, offset: int) -> torch.Tensor:
    """A copy to write to, laid out alike but for expanded dimensions, which nothing can write to."""
    plain = (strides is None and not offset) or (strides is not None and 0 in strides)
    return tensor.clone() if plain else laid_out(tensor, strides, offset)


# The hardware, the memory and the clock of a device, as far as torch knows.


# How a torch that has no such device, or does not say, answers.
_SILENT = (AttributeError, AssertionError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)


def hardware(name: str) -> dict[str, str]:
    """The hardware behind a device's name ("cuda:0"), the version of its driver, and of the libraries that torch was
    built with for it; empty for a device of the project's own."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return {"hardware": f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"}
    found: dict[str, str] = {}
    with suppress(*_SILENT):
        module: Any = torch.get_device_module(kind)
        found["hardware"] = str(module.get_device_name(int(index or 0)))
    if kind == "cuda":
        with suppress(*_SILENT):
            # Private, and there is no public one.
            found["driver"] = str(getattr(torch._C, "_cuda_getDriverVersion")())  # noqa: B009
        with suppress(*_SILENT):
            found["toolkit"] = str(torch.version.hip or torch.version.cuda)
            cudnn: Any = torch.backends.cudnn
            found["cudnn"] = str(cudnn.version())
    return found


# What torch's allocators, oneDNN and C++ say, in lower case.
_DEVICE_RAN_OUT = "out of memory"
_RAN_OUT = ("can't allocate memory", "cannot allocate memory", "not enough memory", _DEVICE_RAN_OUT, "bad_alloc")


def memory_left(place: torch.device) -> int | None:
    """Bytes that nobody has taken of a device's own memory; None for the host's, and where the device does not say."""
    if place.type == "cpu":
        return None
    try:
        left, _ = torch.get_device_module(place.type).mem_get_info(place)
    except _SILENT:
        return None
    return int(left)


def release_memory(place: torch.device) -> None:
    """Empty the cache of a device's allocator, where it has one."""
    if place.type != "cpu":
        with suppress(*_SILENT):
            torch.get_device_module(place.type).empty_cache()


def is_device_memory(error: BaseException) -> bool:
    """Torch's type for it, or the words of a backend that does not use it ("NPU out of memory"); no words of the CPU's
    allocator."""
    return any(
        isinstance(each, torch.OutOfMemoryError) or _DEVICE_RAN_OUT in message_of(each).lower()
        for each in causes(error)
    )


# Such an error, or one that a project's own code made of it.
memory_errors = MemoryErrors(
    lambda error: any(
        isinstance(each, torch.OutOfMemoryError | MemoryError)
        or any(words in message_of(each).lower() for words in _RAN_OUT)
        for each in causes(error)
    )
)


# What Kineto calls an allocation, or a release.
_MEMORY = "[memory]"


def memory_use(place: torch.device, call: Callable[[], object]) -> MemoryUse | None:
    """See Framework.memory_use."""
    if place.type == "cpu":
        return _profiled(call)
    try:
        module: Any = torch.get_device_module(place.type)
        module.synchronize(place)
        before = module.memory_allocated(place)
        module.reset_peak_memory_stats(place)
    except _SILENT:
        return None
    result = call()
    module.synchronize(place)
    peak, after = module.max_memory_allocated(place), module.memory_allocated(place)
    del result
    # A device that holds a call's tensors cannot have held nothing.
    return MemoryUse(peak - before, after - before, "allocator") if peak else None


def _profiled(call: Callable[[], object]) -> MemoryUse | None:
    """By every allocation and release of the CPU's allocator, as Kineto has them: events of operators say what each of
    them leaves, and not what it held."""
    # One that a program has begun counts for that.
    if profiler._is_profiler_enabled:
        return None
    with profiler.profile(use_kineto=True, profile_memory=True) as found:
        result = call()
    del result
    recorded: Any = found.kineto_results
    events = [(event.start_ns(), event.nbytes()) for event in recorded.events() if event.name() == _MEMORY]
    held = list(accumulate((size for _, size in sorted(events, key=itemgetter(0))), initial=0))
    return MemoryUse(max(held), held[-1], "profiler")


def clock(device: Device, *, own: bool) -> Clock:
    """own: it is a device of torch's own, and no project's."""
    place = torch.device(device.name) if own else None
    if place is not None and place.type == "cpu":
        return HostClock()
    if place is not None:
        with suppress(*_SILENT):
            found = EventClock(partial(torch.get_device_module(place.type).Event, enable_timing=True))
            found.seconds(found.mark(), found.mark())
            return found
        with suppress(*_SILENT):
            wait = partial(torch.get_device_module(place.type).synchronize, place)
            wait()
            return HostClock(wait)
    tiny = torch.zeros(1)
    return HostClock(lambda: device.get(device.put(tiny)))


def last_level_cache(place: torch.device) -> int:
    """Bytes; 0 where the device does not say."""
    if place.type == "cpu":
        return cache_of_processor()
    with suppress(*_SILENT):
        properties: Any = torch.get_device_module(place.type).get_device_properties(place)
        return int(properties.L2_cache_size)
    return 0
