"""Which of Paddle's functions are recorded, and under which names: the names that a replay finds again, and what a user
names by paths."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import paddle

from pytest_probe.capture.hooks import Rule
from pytest_probe.frameworks.paddle.allowlist import OTHERS, PUBLIC, is_api

_OPERATORS = "paddle._C_ops"
_METHODS = "paddle.Tensor"

# They ask about a tensor, or take its value out: nothing is computed.
_ASKING = frozenset(
    "item tolist dim ndimension rank detach element_size is_tensor is_complex is_floating_point is_integer is_empty "
    "is_contiguous is_coalesced is_dense is_dist is_same_shape is_selected_rows is_sparse is_sparse_coo is_sparse_csr "
    "__len__ __bool__ __float__ __int__ __long__ __index__ __nonzero__ __complex__".split()
)
# Methods that show a tensor, copy it for Python, or move values into it: what they call inside is no call of the
# program's.
_INSIDE = frozenset("__repr__ __str__ __format__ __deepcopy__ __array__ gradient set_value".split())
# They write to tensors, and Paddle's counter of writes does not count it; so do all operators that end in "_".
_WRITING = frozenset("set_value copy_ set_ value get_tensor _share_buffer_to _set_impl reconstruct_from_".split())
# What writes though its name does not say so, as operators do that compute with running statistics.
_UNMARKED = ("batch_norm", "sync_batch_norm", "instance_norm", "rnn", "assign", "__setitem__")

# Their records keep the generator's state: without it nobody can draw the same again.
_DRAWING = frozenset(
    "dropout dropout2d dropout3d alpha_dropout feature_alpha_dropout rand randn randint randperm rand_like randn_like "
    "randint_like bernoulli multinomial normal uniform gaussian standard_normal standard_gamma exponential geometric "
    "cauchy log_normal poisson binomial rrelu gumbel_softmax fractional_max_pool2d fractional_max_pool3d "
    "scaled_dot_product_attention flash_attention fused_dropout_add rnn truncated_gaussian_random".split()
)


BACKWARDS: Mapping[str, Any] = {
    "paddle.Tensor.backward": paddle.Tensor.backward,
    "paddle.autograd.backward": paddle.autograd.backward,
    "paddle.grad": paddle.grad,
}


def recorded_functions(
    wants: Callable[[str], bool], named: Sequence[tuple[str, Any]] = (), *, all: bool = True
) -> list[tuple[Any, Rule]]:
    """The functions that are replaced, with their rules. named are functions of the user's choice, by the names that
    they get; not all: no others are recorded, also not those above them."""
    chosen = {id(function): (name, function) for name, function in reversed(named)}
    known = [(function, name if all else "", writes) for function, name, writes in _functions()]
    rules = [(function, *chosen.pop(id(function), (name,))[:1], writes) for function, name, writes in known]
    rules += [(function, name, True) for name, function in chosen.values()]
    return [
        (function, Rule(name, bool(name) and wants(name), writes, name.rpartition(".")[2].rstrip("_") in _DRAWING))
        for function, name, writes in rules
        if name or writes or (isinstance(function, FunctionType) and function.__name__ in _INSIDE)
    ]


@functools.cache
def _functions() -> tuple[tuple[Any, str, bool], ...]:
    """All functions that are replaced, each once: with its name, and whether it writes without Paddle counting it."""
    found: dict[int, tuple[Any, str, bool]] = {}

    def find(place: str, own: str = "") -> None:
        for name, function in _members(place):
            if (getattr(function, "__module__", None) or "").startswith(own):
                # What works in place says so, but for these; what it calls inside, which may not count its writes, is
                # not seen.
                writes = name in _UNMARKED or (name.endswith("_") and name[:2] != "__")
                found.setdefault(id(function), (function, f"{place}.{name}", writes))

    # Of what two modules list, each has what is its own.
    find("paddle.nn.functional", own="paddle.nn.")
    for place in ("paddle", _METHODS, *sorted(PUBLIC | set(OTHERS)), _OPERATORS):
        find(place)
    for name in _INSIDE | _WRITING | _ASKING:
        function = getattr(paddle.Tensor, name, None)
        # What Paddle wrote in C++ calls nothing that is replaced.
        if isinstance(function, FunctionType) or (name in _WRITING and function is not None):
            found.setdefault(id(function), (function, "", name in _WRITING))
    for name, function in vars(paddle._C_ops).items():
        if name.endswith("_") and not name.startswith("_"):
            found.setdefault(id(function), (function, "", True))
    return tuple(found.values())


def _members(place: str) -> Iterator[tuple[str, Any]]:
    """The functions of a place that compute, by name."""
    owner = paddle.Tensor if place == _METHODS else importlib.import_module(place)
    names = (
        dir(owner)
        if place in (_METHODS, _OPERATORS)
        else [*getattr(owner, "__all__", ()), *OTHERS.get(place, "").split()]
    )
    functions = ((name, getattr(owner, name, None)) for name in names)
    # Of several names for one function its own comes first, then one without underscores, then the shortest.
    for name, function in sorted(functions, key=_likelihood):
        allowed = callable(function) and not isinstance(function, (type, ModuleType)) and name not in _ASKING
        if allowed and is_api(f"{place}.{name}".partition(".")[2]):
            yield name, function


def _likelihood(named: tuple[str, Any]) -> tuple[bool, bool, int, str]:
    name, function = named
    return getattr(function, "__name__", "") != name, name.startswith("__"), len(name), name


_log = logging.getLogger("pytest_probe")


def functions_at(paths: Sequence[str]) -> list[tuple[str, Any]]:
    """The functions at these paths, each after its path. One warning names missing paths, and those of other
    objects."""
    functions, others = [], []
    for path in dict.fromkeys(paths):
        function = _at(path)
        if callable(function) and not isinstance(function, (type, ModuleType)):
            functions.append((path, function))
        else:
            kind = "missing" if function is None else "a module" if isinstance(function, ModuleType) else "no function"
            others.append(f"{path} ({kind})")
    if others:
        _log.warning("pytest-probe: these are not recorded: %s", ", ".join(others))
    return functions


def _at(path: str) -> Any:
    """What a path leads to, None where it leads to nothing: inside the longest part of it that is a module."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        try:
            module: Any = importlib.import_module(".".join(names[:count]))
        except Exception:  # a module's own code may raise anything
            continue
        return functools.reduce(lambda owner, name: getattr(owner, name, None), names[count:], module)
    return None
