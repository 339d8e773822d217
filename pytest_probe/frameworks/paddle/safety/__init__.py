"""PaddlePaddle: calls whose kernels do not check what they are given, and end the process where it is wrong.

A dump is untrusted, so it is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.paddle.safety.shapes import (
    INDEX_CHECKS,
    SHAPE_CHECKS,
    are_sizes,
    array_at,
    arrays_at,
    listed,
    shape_of,
)
from pytest_probe.frameworks.python.binding import by_name
from pytest_probe.model.run import BoundCall, Leaf

# Arguments of optimizers' steps that have the parameter's shape, and such as are single numbers.
_AS_PARAMETER = (
    "grad moment1 moment2 moment2_max velocity moment inf_norm avg_squared_grad avg_squared_update mean_square "
    "mean_grad previous rates average oldest master_param"
).split()
_SINGLE = "lr count skip_update".split()
# Products over the steps: single numbers, or as the parameter.
_PRODUCTS = "beta1_pow beta2_pow momentum_decay_pow mu_product rho".split()
_WIDE_PRODUCTS = ("nadam", "radam")
_FLAGS = {"multi_precision": "master_param", "amsgrad": "moment2_max", "centered": "mean_grad"}


def _stepped(bound: BoundCall) -> Iterator[str]:
    """A step of an optimizer's: moments are as the parameter, rates single numbers, and what a flag asks for is
    there."""
    whole = array_at(bound, "param")
    if whole is None:
        yield "no parameter"
        return
    products = bound.name in _WIDE_PRODUCTS
    for name, array in arrays_at(bound, [*_AS_PARAMETER, *(_PRODUCTS if products else ())]):
        if array.shape != whole.shape:
            yield f"{name} of {list(array.shape)} for a parameter of {list(whole.shape)}"
    for name, array in arrays_at(bound, [*_SINGLE, *(() if products else _PRODUCTS)]):
        if array.size != 1:
            yield f"{name} of {list(array.shape)}, expected one number"
    for name, array in arrays_at(bound, ("range", "etas")):
        if array.size != 2:
            yield f"{name} of {list(array.shape)}, expected two numbers"
    for flag, name in _FLAGS.items():
        if bound.argument(flag) and array_at(bound, name) is None:
            yield f"{flag} without {name}"


def _stepped_together(bound: BoundCall) -> Iterator[str]:
    """A step for several parameters: each list has one for each, and each of these is a step."""
    count = len(listed(bound, "param") or ())
    lists = {name: listed(bound, name) for name in ("param", *_AS_PARAMETER, *_SINGLE, *_PRODUCTS)}
    for name, found in lists.items():
        if found is not None and len(found) != count:
            yield f"{len(found)} of {name} for {count} parameters"
            return
    for number in range(count):
        own = {name: found[number] for name, found in lists.items() if found is not None}
        yield from _stepped(replace(bound, given={**bound.given, **own}))


_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _recurrent(bound: BoundCall) -> Iterator[str]:
    """rnn(x, states, weights, lengths, ...): of each layer and direction the weights of input and state, then of each
    the biases."""
    data, mode, layers, hidden = (array_at(bound, "input"), *map(bound.argument, ("mode", "num_layers", "hidden_size")))
    if data is None or data.ndim != 3 or not data.size or mode not in _GATES or not are_sizes([layers, hidden]):
        yield "arguments that are none of a recurrent layer"
        return
    if not layers or not hidden:
        yield f"{layers} layers of {hidden} numbers"
        return
    ways = 2 if bound.argument("is_bidirec") else 1
    states = [shape_of(state) for state in bound.argument("states") or ()]
    if states != [(layers * ways, data.shape[1], hidden)] * (2 if mode == "LSTM" else 1):
        yield f"states of {states}"
    rows = _GATES[mode] * hidden
    inputs = [data.shape[2] if layer < ways else ways * hidden for layer in range(layers * ways)]
    wanted = [shape for width in inputs for shape in ((rows, width), (rows, hidden))]
    found = [shape_of(weight) for weight in bound.argument("weights") or ()]
    if found != wanted + [(rows,)] * len(wanted) or bound.argument("input_size") != data.shape[2]:
        yield f"weights of {found}"
    lengths = array_at(bound, "lengths")
    if lengths is not None and (
        lengths.dtype not in (np.int32, np.int64)
        or lengths.shape != data.shape[1:2]
        or not ((lengths > 0) & (lengths <= len(data))).all()
    ):
        yield f"lengths {lengths.tolist()}, expected int32 or int64, one for each of {data.shape[1]} sequences"


# By canonical name: what is wrong with the arguments of a call.
_TRAINING_CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = by_name({
    "adadelta adagrad adam adamax adamw asgd lamb momentum nadam radam rmsprop rprop sgd": _stepped,
    "merged_adam merged_momentum": _stepped_together,
    "rnn": _recurrent,
})  # fmt: skip


def check_arguments(bound: BoundCall) -> None:
    """Raises UnsafeArguments where a call may end the process."""
    problem = next(_problems(bound), None) if bound.native else None
    if problem is not None:
        raise UnsafeArguments(f"{bound.api}: found {problem}; its kernel would not check that, and may end the process")


def _problems(bound: BoundCall) -> Iterator[str]:
    # Methods in C++ read the other operand, whether there is one or not.
    two = bound.api.rpartition(".")[2] in _OPERATORS or bound.name == "is_same_shape"
    if two and len(bound.given.keys() & {"input", "other", "input.1", "y"}) < 2:
        yield "one operand, expected two"
    # One in C++ reads the value in a dtype's place as one; of what is none it ends the process.
    places = _DTYPES.get("sparse.cast" if bound.api.endswith("sparse.cast") else bound.name, {})
    for name, value in bound.given.items():
        flag = isinstance(value, bool) and places.get(name) == "keepdim"
        if name in places and isinstance(value, _NO_DTYPE) and not flag:
            kind = "a tensor" if isinstance(value, Leaf) else type(value).__name__
            yield f"{kind} in the place of {places[name]}"
    if bound.name in _CHECKS:
        yield from _CHECKS[bound.name](bound)


_NO_DTYPE = (Leaf, list, tuple, dict, int, float, complex)
# Tensor methods of two operands.
_ARITHMETIC = "add sub mul div truediv floordiv mod pow matmul".split()
_OPERATORS = frozenset(
    [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    + [f"__{name}__" for name in "and or xor eq ne lt le gt ge lshift rshift rlshift rrshift".split()]
)
# By canonical name: which arguments are a dtype, or a flag that is handed on before one, and what those are called.
_DTYPES: Mapping[str, Mapping[str, str]] = {
    **{name: {"input.2": "dtype", "dtype": "dtype"} for name in ("sum", "nansum")},
    "sparse.cast": {"input.1": "dtype", "input.2": "dtype", "index_dtype": "dtype", "value_dtype": "dtype"},
    **{name: {"input.3": "dtype", "dtype": "dtype"} for name in ("argmax", "argmin")},
    **{name: {"input.2": "keepdim", "keepdim": "keepdim"} for name in ("count_nonzero", "nanmean")},
}
# By canonical name: what is wrong with the arguments of a call.
_CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {**SHAPE_CHECKS, **INDEX_CHECKS, **_TRAINING_CHECKS}
