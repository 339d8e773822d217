"""Calls of every function that a capture records, on tensors whose class answers each of them."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch.nn.functional import ScalingType
from torch.testing._internal.generated.annotated_fn_args import annotated_args

from pytest_probe.frameworks.torch.allowlist import is_api

_PLACES: Mapping[str, Any] = {
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.special": torch.special,
    "torch.fft": torch.fft,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
}
_MADE = torch.zeros(2)
# By the types that torch's parsers name.
_VALUES: Mapping[str, Any] = {
    "int64_t": 1, "SymInt": 1, "bool": True, "Scalar": 2, "double": 0.5, "ScalarType": torch.float32, "Device": "cpu",
    "DeviceIndex": 0, "Layout": torch.strided, "c10::string_view": "sum", "Stream": None,
}  # fmt: skip
# What is given in other cases, behind the tensor of a method.
_GIVEN: Mapping[str, Callable[[], Any]] = {
    **dict.fromkeys("__bool__ __complex__ __float__ __index__ __int__ __invert__ __long__ __nonzero__".split(), tuple),
    "map_": lambda: (_MADE, max),
    "map2_": lambda: (_MADE, _MADE, max),
    "apply_": lambda: (abs,),
    "__setitem__": lambda: (0, 1),
    "unique_consecutive": lambda: (_given(),),
    **dict.fromkeys(("as_tensor", "asarray", "tensor"), lambda: ([1.0],)),
    "copy_": lambda: (_MADE,),
    "Tensor.polygamma": lambda: (2,),
    "einsum": lambda: ("i,i", _given(), _given()),
    "empty_permuted": lambda: ((1,), (0,)),
    "randint": lambda: (5, (2,)),
    "range": lambda: (0, 1),
    "scaled_mm": lambda: (_given(), _given(), _given(), ScalingType.TensorWise, _given(), ScalingType.TensorWise),
    "scaled_grouped_mm": lambda: (
        *(_given(), _given(), _given(), ScalingType.TensorWise),
        *(_given(), ScalingType.TensorWise),
    ),
}


class Answering(torch.Tensor):
    """A tensor that has computed everything already."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _MADE


def _given() -> torch.Tensor:
    return torch.Tensor._make_subclass(Answering, torch.ones(2))


def _value(kind: str) -> Any:
    kind = kind.removesuffix("?")
    if kind == "Tensor":
        return _given()
    if "TensorList" in kind or "optional<Tensor>" in kind:
        return [_given()]
    if "Array" in kind or "List" in kind:
        return [1]
    return torch.Generator() if kind == "Generator" else _VALUES[kind]


def _arguments(owner: Any, name: str, function: Any) -> tuple[list[Any], dict[str, Any]]:
    method = [_given()] if owner is torch.Tensor else []
    given = _GIVEN.get(f"{owner.__name__}.{name}") or _GIVEN.get(name)
    if given is not None:
        return [*method, *given()], {}
    if function in annotated_args:
        known: Any = annotated_args[function]
        plain = [_value(each["simple_type"]) for each in known if each["is_kwarg_only"] == "False"]
        return plain, {each["name"]: _value(each["simple_type"]) for each in known if each["is_kwarg_only"] == "True"}
    if not inspect.isfunction(function):
        return [_given(), *([_given()] if name.startswith("__") else [])], {}
    parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    wanted = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    # What wraps a method of an operator takes anything.
    return [_given() for _ in (1, 2)] if wanted[0].name == "args" else [_given() for _ in wanted], {}


Call = tuple[Any, str, list[Any], dict[str, Any]]


def calls() -> list[Call]:
    """Calls that end: where the function stands, its name and the arguments."""
    return [
        (owner, name, *_arguments(owner, name, getattr(owner, name)))
        for place, owner in _PLACES.items()
        for name in dir(owner)
        if is_api(place, name)
    ]


def make(made: list[Call]) -> None:
    for owner, name, args, kwargs in made:
        getattr(owner, name)(*args, **kwargs)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(_plain(function))


def _partial(function: Callable[..., Any]) -> Any:
    if isinstance(function, (MethodDescriptorType, WrapperDescriptorType)):
        return functools.partialmethod(function)
    return functools.partial(function)


class _Object:
    """As wrapt makes them: a class gives another one each time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __get__(self, instance: Any, owner: type) -> Any:
        return _Object(self.function) if instance is None else functools.partial(self.function, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


_STYLES = (_plain, _named, _partial, _Object)


@contextmanager
def wrapped(made: list[Call], first: int = 0) -> Iterator[None]:
    """Each function in one of these ways, in turn."""
    before = [(owner, name, vars(owner).get(name, owner)) for owner, name, _, _ in made]
    for number, (owner, name, _, _) in enumerate(made, first):
        setattr(owner, name, _STYLES[number % len(_STYLES)](getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, value in before:
            delattr(owner, name) if value is owner else setattr(owner, name, value)


def names(entries: Iterable[str]) -> Counter[str]:
    """How often each function is in a dump."""
    return Counter(entry.rsplit(".", 2)[0] for entry in entries if entry.endswith(".forward"))
