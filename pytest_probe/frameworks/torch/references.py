"""PyTorch: how a function becomes its own reference, and what changes while a reference runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from msgspec import Struct
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks import COMPILED
from pytest_probe.frameworks.base import Cast, Functions, border_dtype, looked_up
from pytest_probe.frameworks.python.binding import clamp_limits
from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.frameworks.torch.kernels import KernelsBy
from pytest_probe.model.comparison import Choice
from pytest_probe.user_errors import allowing_refusal, users_place

# Some defaults are a number of the tensors' dtype, which float64 would make another call of. Compiled functions of
# torch run without the mode that writes them down: it sees calls from Python alone, so it would see nothing inside one.

# u_c of float32: what kernels of float32 and of all narrower dtypes compute in.
EPS = torch.finfo(torch.float32).eps
_CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


def _epsilon(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """rms_norm(x, shape, weight, eps): that of the arithmetic, float32 for everything narrower."""
    if kwargs.get("eps") is not None or (len(args) > 3 and args[3] is not None):
        return args, kwargs
    return args[:3], {**kwargs, "eps": EPS}


def _relative_tolerance(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """pinv and matrix_rank(A, *, atol, rtol), or with one tolerance in their place."""
    if len(args) > 1 or any(kwargs.get(name) is not None for name in ("atol", "rtol", "tol", "rcond")):
        return args, kwargs
    return args, {**kwargs, "rtol": _cut_off(args, kwargs)}


def cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """lstsq(A, B, rcond)."""
    if kwargs.get("rcond") is not None or (len(args) > 2 and args[2] is not None):
        return args, kwargs
    return args[:2], {**kwargs, "rcond": _cut_off(args, kwargs)}


def _cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Below which share of the largest singular value one counts as zero."""
    matrix = args[0] if args else kwargs["input"]
    return float(EPS * max(matrix.shape[-2:]))


_DEFAULTS: Mapping[Any, Callable[[tuple[Any, ...], dict[str, Any]], _CallArguments]] = {
    torch.nn.functional.rms_norm: _epsilon,
    torch.rms_norm: _epsilon,
    torch.linalg.matrix_rank: _relative_tolerance,
    torch.linalg.pinv: _relative_tolerance,
    torch.linalg.lstsq: cut_off,
}

# These take the largest number of the dtype, which float64 has another of.
_LIMITED = frozenset((torch.nan_to_num, torch.nan_to_num_, torch.Tensor.nan_to_num, torch.Tensor.nan_to_num_))


class _DefaultsMode(TorchFunctionMode):
    """Writes these defaults down, as they are for float32 and for tensors whose largest number this is."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self._largest = largest

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        change = partial(clamp_limits, self._largest) if func in _LIMITED else _DEFAULTS.get(func, lambda *same: same)
        args, kwargs = change(args, kwargs or {})
        return func(*args, **kwargs)


def as_single(function: Callable[..., Any], largest: float, /, *args: Any, **kwargs: Any) -> Any:
    """The function's result under these defaults."""
    called = looked_up(function)
    if runs_plain(called):
        return called(*args, **kwargs)
    with _DefaultsMode(largest):
        return called(*args, **kwargs)


# What the CPU says where it has a kernel for floating dtypes alone.
_NO_INTEGERS = "not implemented for '"


def reference_result(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A reference's result; where the CPU has no kernel for integers, that of the same numbers as float64, in their
    dtype."""
    try:
        return function(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        integers = [
            x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and not x.dtype.is_floating_point
        ]
        fit = (not x.is_complex() and torch.equal(x.double().to(x.dtype), x) for x in integers)
        if _NO_INTEGERS not in str(error) or not integers or not all(fit):
            raise
        with allowing_refusal():
            wide = [tree_map_only(torch.Tensor, torch.Tensor.double, each) for each in (args, kwargs)]
            found, dtype = function(*wide[0], **wide[1]), integers[0].dtype
            return tree_map_only(torch.Tensor, lambda y: y.to(dtype) if torch.equal(y, y.round()) else y, found)
        raise


def runs_plain(function: Callable[..., Any]) -> bool:
    """Is it one of torch's compiled functions without such a default? A mode would see nothing that it calls."""
    if not isinstance(function, COMPILED) or function in _LIMITED or function in _DEFAULTS:
        return False
    if getattr(torch._C._VariableFunctions, function.__name__, None) is function:
        return True
    # A class of its methods, or the module that holds it.
    owner = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
    return str(getattr(owner, "__module__", None) or getattr(owner, "__name__", "")).startswith("torch.")


# In a run of a user's reference, casts and factories of floating dtypes that are narrower than the run's give that of
# the run. A border between two kernels rounds values and their gradient, in runs that are asked to.

# By the dtype of the run.
_WIDE: Mapping[str, Mapping[torch.dtype, torch.dtype]] = {
    "float64": {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    },
    "float32": {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64},
}
# The dtype of a kernel that reads the bits of its tensor is no cast.
_BITS = (torch.ops.aten.view.dtype,)


def widening(dtype: str, casts: list[Cast]) -> AbstractContextManager[Any]:
    """In here a kernel that is asked for a narrower floating dtype gives dtype; casts gets each."""
    wider = _WIDE[dtype]

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in wider:
            return value
        casts.append(Cast(str(value).removeprefix("torch."), users_place()))
        return wider[value]

    def called(func: Any, args: Any, kwargs: Any) -> Any:
        if func in _BITS:
            return func(*args, **kwargs)
        return func(*map(wide, args), **{key: wide(value) for key, value in kwargs.items()})

    return KernelsBy(called)


def border(tensor: torch.Tensor) -> torch.Tensor:
    """See Framework.border."""
    dtype = border_dtype()
    if not dtype or not tensor.is_floating_point():
        return tensor
    passed: torch.Tensor = _Border.apply(tensor, getattr(torch, dtype))  # type: ignore[no-untyped-call]
    return passed


class _Border(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        context.dtype = dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _rounded(gradient, context.dtype), None


def _rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # In a reference's run casts give float64: this one narrows.
    with _disable_current_modes():
        return tensor.to(dtype).to(tensor.dtype)


# Which elements a function chooses, and what it chooses them from.

_ATEN = torch.ops.aten
# Kernels that choose: the place of the argument `dim` and its default, None for the flattened tensor.
_CHOOSING: Mapping[Any, tuple[int, int | None]] = {
    _ATEN.topk.default: (2, -1),
    _ATEN.sort.default: (1, -1),
    _ATEN.sort.stable: (2, -1),
    _ATEN.argmax.default: (1, None),
    _ATEN.argmin.default: (1, None),
    _ATEN.max.dim: (1, None),
    _ATEN.min.dim: (1, None),
    _ATEN.kthvalue.default: (2, -1),
    _ATEN.median.dim: (1, None),
    _ATEN.nanmedian.dim: (1, None),
    _ATEN.mode.default: (1, -1),
    _ATEN.cummax.default: (1, None),
    _ATEN.cummin.default: (1, None),
}
# What chooses the largest so far.
_IN_ORDER = frozenset((_ATEN.cummax.default, _ATEN.cummin.default))


def noting(function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
    """The function, which adds to `noted` each choice that it makes."""

    def seen(func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if func in _CHOOSING:
            place, default = _CHOOSING[func]
            dim = args[place] if len(args) > place else kwargs.get("dim", default)
            indices = result[1] if isinstance(result, (tuple, list)) else result
            noted.append(Choice(to_array(args[0]).copy(), dim, to_array(indices).copy()))
        return result

    return _with_kernels_by(seen, function)


def choosing_otherwise(function: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """The function, whose choices fall on others of equal elements: on the last one for seed 0, else on any."""
    generator = torch.Generator().manual_seed(seed)

    def seen(func: Any, args: Any, kwargs: Any) -> Any:
        if func not in _CHOOSING or func in _IN_ORDER or kwargs.get("stable") or not args[0].ndim:
            return func(*args, **kwargs)
        place, default = _CHOOSING[func]
        dim = args[place] if len(args) > place else kwargs.get("dim", default)
        values = args[0].flatten() if dim is None else args[0]
        size = values.shape[dim or 0]
        order = torch.randperm(size, generator=generator) if seed else torch.arange(size).flip(0)
        result = func(values.index_select(dim or 0, order).reshape(args[0].shape), *args[1:], **kwargs)
        return (result[0], order[result[1]]) if isinstance(result, (tuple, list)) else order[result]

    return _with_kernels_by(seen, function)


def _with_kernels_by(seen: Callable[[Any, Any, Any], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose kernels `seen` makes."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with KernelsBy(seen):
            return function(*args, **kwargs)

    return called


# Modules as functions of their parameters and buffers.

# What a compiled Module puts before the names of the one that it was made of.
_COMPILED = "_orig_mod."


def functions(function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
    """Two functions, of which each may be a Module; see Framework.functions."""
    own = _State.of(function) if isinstance(function, torch.nn.Module) else None
    others = _State.of(reference) if isinstance(reference, torch.nn.Module) else None
    if own is None and others is None:
        return Functions(function, reference)
    if own is None or others is None:
        # The other side knows nothing of these, so that no gradient and no change of theirs can be compared.
        state = own or others
        assert state is not None
        call = _Call(function, own, writes=False), _Call(reference, others, writes=False)
        return Functions(*call, {"module": state.tensors}, _named("module", state.tensors))
    _check_alike(own, others)
    buffers = {name: tensor for name, tensor in others.tensors.items() if name not in own.tensors}
    fixed = {name for name, tensor in own.tensors.items() if name in own.buffers or not tensor.requires_grad}
    constant = _named("module", fixed) | _named("reference", buffers)
    tensors = {"module": own.tensors, **({"reference": buffers} if buffers else {})}
    return Functions(_Call(function, own), _Call(reference, others), tensors, constant)


def _named(root: str, names: Any) -> frozenset[str]:
    return frozenset(f"kwargs.{root}.{name}" for name in names)


class _State(Struct, frozen=True):
    """A Module's parameters and buffers, by the names that it would have uncompiled; buffers names the latter."""

    module: torch.nn.Module
    tensors: Mapping[str, torch.Tensor]
    buffers: frozenset[str]

    @classmethod
    def of(cls, module: torch.nn.Module) -> _State:
        parameters = {_plain(name): tensor for name, tensor in module.named_parameters()}
        buffers = {_plain(name): tensor for name, tensor in module.named_buffers()}
        return cls(module, {**parameters, **buffers}, frozenset(buffers))

    def own_names(self) -> dict[str, str]:
        """The names that the Module itself gives, by ours."""
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return {_plain(name): name for name, _ in named}


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def _check_alike(own: _State, others: _State) -> None:
    """Raises SettingsError where the Modules have other parameters, or other shapes."""
    lonely = [
        f"{name} of the {side}"
        for side, first, second in (("function", own, others), ("reference", others, own))
        for name in first.tensors
        if name not in first.buffers and name not in second.tensors
    ]
    if lonely:
        advice = "two Modules must name their parameters alike; make the reference a function of its tensors instead"
        raise SettingsError("probe.check: reference", type(others.module).__name__, f"{advice}: {', '.join(lonely)}")
    for name in own.tensors:
        first, second = own.tensors[name].shape, others.tensors.get(name, own.tensors[name]).shape
        if first != second:
            found = f"{name} is {list(second)} there and {list(first)} in the function; they must be alike"
            raise SettingsError("probe.check: reference", type(others.module).__name__, found)


class _Call:
    """Calls a function, or a Module with the parameters and buffers that it is given."""

    def __init__(self, function: Callable[..., Any], state: _State | None, *, writes: bool = True) -> None:
        self._function = function
        self._state = state
        self._writes = writes
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, module: Any, reference: Any = None, **kwargs: Any) -> Any:
        if self._state is None:
            return self._function(*args, **kwargs)
        given = {**module, **(reference or {})}
        named = {own: given[name] for name, own in self._state.own_names().items()}
        if not self._writes:
            buffers = self._state.buffers
            named = {name: each.clone() if _plain(name) in buffers else each for name, each in named.items()}
        before = dict(named)
        result = torch.func.functional_call(self._state.module, named, args, kwargs)
        for name, tensor in before.items():
            if named[name] is not tensor:
                # What a Module made one of its tensors, as a change of the one that it was given.
                assigned = named[name]
                with torch.no_grad():
                    (tensor if assigned.shape == tensor.shape else tensor.resize_(assigned.shape)).copy_(assigned)
        return result
