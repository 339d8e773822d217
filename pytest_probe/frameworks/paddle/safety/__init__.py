"""PaddlePaddle: calls whose kernels do not check what they are given, and end the process where it is wrong.

A dump is untrusted, so it is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.paddle.safety import indices, shapes, training
from pytest_probe.model.arguments import BoundCall, Leaf


def check_arguments(bound: BoundCall) -> None:
    """Raises UnsafeArguments where a call may end the process."""
    problem = next(_problems(bound), None) if bound.native else None
    if problem is not None:
        raise UnsafeArguments(f"{bound.api}: found {problem}; its kernel would not check that, and may end the process")


def _problems(bound: BoundCall) -> Iterator[str]:
    yield from _operands(bound)
    yield from _misplaced(bound)
    if bound.name in CHECKS:
        yield from CHECKS[bound.name](bound)


def _operands(bound: BoundCall) -> Iterator[str]:
    """Methods in C++ read the other operand, whether there is one or not."""
    two = bound.api.rpartition(".")[2] in OPERATORS or bound.name == "is_same_shape"
    if two and len(bound.given.keys() & {"input", "other", "input.1", "y"}) < 2:
        yield "one operand, expected two"


def _misplaced(bound: BoundCall) -> Iterator[str]:
    """A method in C++ reads the value in a dtype's place as one; of what is none it ends the process."""
    places = DTYPES.get("sparse.cast" if bound.api.endswith("sparse.cast") else bound.name, {})
    for name, value in bound.given.items():
        flag = isinstance(value, bool) and places.get(name) == "keepdim"
        if name in places and isinstance(value, NO_DTYPE) and not flag:
            yield f"{_described(value)} in the place of {places[name]}"


def _described(value: object) -> str:
    return "a tensor" if isinstance(value, Leaf) else type(value).__name__


NO_DTYPE = (Leaf, list, tuple, dict, int, float, complex)
# Tensor methods of two operands.
_ARITHMETIC = "add sub mul div truediv floordiv mod pow matmul".split()
OPERATORS = frozenset(
    [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    + [f"__{name}__" for name in "and or xor eq ne lt le gt ge lshift rshift rlshift rrshift".split()]
)
# By canonical name: which arguments are a dtype, or a flag that is handed on before one, and what those are called.
DTYPES: Mapping[str, Mapping[str, str]] = {
    **{name: {"input.2": "dtype", "dtype": "dtype"} for name in ("sum", "nansum")},
    "sparse.cast": {"input.1": "dtype", "input.2": "dtype", "index_dtype": "dtype", "value_dtype": "dtype"},
    **{name: {"input.3": "dtype", "dtype": "dtype"} for name in ("argmax", "argmin")},
    **{name: {"input.2": "keepdim", "keepdim": "keepdim"} for name in ("count_nonzero", "nanmean")},
}
# By canonical name: what is wrong with the arguments of a call.
CHECKS: Mapping[str, Callable[[BoundCall], Iterator[str]]] = {**shapes.CHECKS, **indices.CHECKS, **training.CHECKS}
