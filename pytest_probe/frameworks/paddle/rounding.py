"""PaddlePaddle: run a call in float64 but round what passes from operator to operator, as healthy kernels of float32.

Paddle has no mode that sees operators, but its functions look them up in one module when they run, or have them by a
name in their own, and tensors theirs in one class: there they are replaced for the time of a run. `decomposed` writes
out what loses digits inside an operator.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import COMPLEX, Tensor, to_array, to_tensor
from pytest_probe.frameworks.paddle.decomposed import DECOMPOSED
from pytest_probe.model.run import Steps
from pytest_probe.numerics.dtypes import ULP_FLOAT32

_ops: Any = paddle._C_ops
# Functions that no library rounds correctly.
_LIBRARY = frozenset(
    "exp expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid erf "
    "erfinv lgamma digamma pow elementwise_pow".split()
)
# Operators that only move values: rounding waits for the next that computes with them.
_MOVES = frozenset(
    "assign cast concat stack pad pad3d index_select gather gather_nd flip tile roll where reshape transpose squeeze "
    "unsqueeze slice strided_slice split split_with_num unbind unstack expand expand_as flatten".split()
)
# Modules whose functions call operators, some by names of their own.
_CALLING = ("paddle.tensor.", "paddle.nn.", "paddle.incubate.nn.", "paddle.linalg", "paddle.special", "paddle.fft")
# Those of tensors that are written in C, and so pass by the module.
_METHODS = tuple(f"__{name}__" for name in "add radd sub rsub mul rmul truediv rtruediv pow".split())


class _Rounding:
    """One run whose intermediate results are rounded to float32 when a later operator reads them; the outputs are not.
    Gradients are rounded on the same way back. A library's functions are off by up to a float32 ulp, as seed draws it;
    by_chance: a value between two float32 numbers becomes either neighbour.
    """

    def __init__(self, steps: Steps) -> None:
        self._by_chance = steps.by_chance
        self._generator = np.random.Generator(np.random.Philox(key=steps.seed))
        self._pending: dict[int, tuple[Tensor, bool]] = {}  # by id: what was made, by a library?
        self._within = False

    def called(self, name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """An operator's result, of rounded arguments."""
        if self._within:
            return operator(*args, **kwargs)
        bare = name.strip("_")
        # The steps are those of real numbers.
        inside_complex = any(isinstance(value, paddle.Tensor) and value.dtype in COMPLEX for value in args)
        written = None if inside_complex else DECOMPOSED.get(bare)
        moves, in_place = bare in _MOVES, name.endswith("_") and not name.startswith("__")
        moved = moves and any(self._pending.get(id(value), (None, False))[1] for value in args)
        self._within = True
        try:
            if not moves:
                args = tuple(
                    value if in_place and not place else self._rounded_tree(value) for place, value in enumerate(args)
                )
            if written is not None:
                # The name of the result, and the tensor that it should be put in, are no part of the steps.
                kwargs = {key: value for key, value in kwargs.items() if key not in ("name", "out")}
            result = operator(*args, **kwargs) if written is None else written(self.step, *args, **kwargs)
        finally:
            self._within = False
        self._note(result, moved or bare in _LIBRARY)
        return result

    def step(self, tensor: Tensor, *, library: bool = False) -> Tensor:
        """The result of a step inside an operator, as the next step reads it."""
        if tensor.dtype != paddle.float64:
            return tensor
        rounded = to_tensor(self._narrowed(to_array(tensor.detach()), library))
        if tensor.stop_gradient:
            return rounded
        # Values are rounded, gradients pass, and are rounded in turn.
        passed = tensor + (rounded - tensor.detach())
        passed.register_hook(self._of_gradient)
        return passed

    def _of_gradient(self, gradient: Tensor) -> Tensor:
        return to_tensor(self._narrowed(to_array(gradient), False)) if gradient.dtype == paddle.float64 else gradient

    def _narrowed(self, values: np.ndarray, library: bool) -> np.ndarray:
        if library:
            values = values * (1 + ULP_FLOAT32 * (2 * self._generator.random(values.shape) - 1))
        with np.errstate(all="ignore"):
            nearest = np.asarray(values, np.float32)
            if self._by_chance:
                other = np.nextafter(nearest, np.where(nearest < values, np.float32(np.inf), np.float32(-np.inf)))
                other = np.where(nearest == values, nearest, other)
                nearest = np.where(self._generator.random(values.shape) < 0.5, nearest, other)
        return np.asarray(nearest, np.float64)

    def _rounded_tree(self, tree: Any) -> Any:
        if type(tree) in (list, tuple):
            return type(tree)([self._rounded_tree(item) for item in tree])
        found = self._pending.get(id(tree))
        return tree if found is None else self.step(tree, library=found[1])

    def _note(self, tree: Any, library: bool) -> None:
        if isinstance(tree, (list, tuple)):
            for item in tree:
                self._note(item, library)
        elif isinstance(tree, paddle.Tensor):
            self._pending[id(tree)] = tree, library  # kept: another tensor would get its id


@functools.cache
def _operators() -> Mapping[str, Callable[..., Any]]:
    """The operators that compute on tensors, and no gradients or parts of programs."""
    named = ((name, getattr(_ops, name)) for name in dir(_ops) if not name.startswith("_") and "grad" not in name)
    return {name: found for name, found in named if callable(found)}


@functools.cache
def _bound() -> Sequence[tuple[Any, str, str]]:
    """Where Paddle's functions have an operator by a name of their own: the module, that name, and the operator's."""
    known = {id(operator): name for name, operator in _operators().items()}
    modules = [module for path, module in sorted(sys.modules.items()) if path.startswith(_CALLING)]
    return [
        (module, name, known[id(value)])
        for module in modules
        for name, value in vars(module).items()
        if id(value) in known
    ]


@contextlib.contextmanager
def rounding(steps: Steps | None) -> Iterator[None]:
    """Calls in here pass through steps that round; without any they are as ever."""
    if steps is None:
        yield
        return
    run = _Rounding(steps)
    methods = {name: getattr(paddle.Tensor, name) for name in _METHODS}
    with replaced(lambda name, operator: functools.partial(run.called, name, operator)):
        try:
            for name, method in methods.items():
                setattr(paddle.Tensor, name, functools.partialmethod(_method, run, name, method))
            yield
        finally:
            for name, method in methods.items():
                setattr(paddle.Tensor, name, method)


@contextlib.contextmanager
def replaced(change: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """In here each operator is what `change` makes of it, given its name, wherever Paddle's functions find it."""
    # What other runs have put there for their time comes back behind this one.
    before = {name: getattr(_ops, name) for name in _operators()}
    try:
        for name, operator in before.items():
            setattr(_ops, name, change(name, operator))
        for module, name, operator_name in _bound():
            setattr(module, name, getattr(_ops, operator_name))
        yield
    finally:
        for name, operator in before.items():
            setattr(_ops, name, operator)
        for module, name, operator_name in _bound():
            setattr(module, name, before[operator_name])


def _method(tensor: Tensor, run: _Rounding, name: str, method: Callable[..., Any], *args: Any) -> Any:
    return run.called(name, method, tensor, *args)
