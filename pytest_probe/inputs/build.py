"""The arguments of a case: stored tensors where a dump has them, generated ones of the same statistics elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_probe.errors import LostArgument, RecordError, Unsupported
from pytest_probe.inputs.generated import generate, kind_of, round_to_dtype
from pytest_probe.inputs.planting import plant, supposed
from pytest_probe.inputs.role_table import is_planted, roles
from pytest_probe.inputs.roles import NoValues, Role
from pytest_probe.inputs.stored import StoredTensors
from pytest_probe.inputs.strides import is_layout, offset, without_repeats
from pytest_probe.model.arguments import Arguments, Array, BoundCall, Leaf, map_tree
from pytest_probe.model.dump import Argument, Call, TensorSpec, named_tensors
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.random_streams import RecordStreams

_COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}


def build(
    call: Call,
    *,
    bound: BoundCall,
    record: str,
    dtype: str | None,
    seed: int,
    kind: str,
    files: StoredTensors,
) -> Arguments:
    """The arguments of one call, in the recorded dtypes or with every floating tensor rounded to dtype.

    kind is "auto", "generated" or "stored". bound is the same call with its arguments by name, record the record's name
    ("Functional.linear.0"). Complex tensors go to the complex dtype of dtype's width where NumPy has one, else they
    stay. Generated values are drawn for the
    recorded dtype, so all dtypes see the same ones, rounded. A tensor that was passed twice is
    one array in both places.
    Raises RecordError where a tensor cannot be had, Unsupported where kind is "stored" and the dump has only
    statistics.
    """
    _check_dtypes(call, record, files)
    return _Builder(call, bound, record, dtype, seed, kind, files).arguments()


def _check_dtypes(call: Call, record: str, files: StoredTensors) -> None:
    for root, tree in (("input", call.args), ("kwargs", call.kwargs), ("grad", call.gradients)):
        for path, spec in named_tensors(tree, root):
            _check_dtype(spec, *files.place(record, path), files)


def _check_dtype(spec: TensorSpec, entry: str, field: str, files: StoredTensors) -> None:
    try:
        kind_of(spec.dtype)
    except ValueError as failure:
        wanted = "a dtype that NumPy or ml_dtypes has"
        raise RecordError(files.dump_path, entry, f"{field}.dtype", repr(spec.dtype), wanted) from failure


def _stream(path: str) -> str:
    """The name of an argument's random numbers, which seeds of recorded runs hang on."""
    root, _, rest = path.partition(".")
    return f"args.{rest}" if root == "input" else path


class _Builder:
    def __init__(
        self, call: Call, bound: BoundCall, record: str, dtype: str | None, seed: int, kind: str, files: StoredTensors
    ) -> None:
        self._call, self._record, self._dtype, self._kind, self._files = call, record, dtype, kind, files
        self._bound = bound
        self._streams = RecordStreams(record, seed)
        self._roles: Mapping[str, Role] = {} if kind == "stored" else roles(bound, call)
        self._first = self._same_tensors()
        self._made: dict[str, AnyArray] = {}

    def arguments(self) -> Arguments:
        gradients = self._call.gradients
        return Arguments(
            args=tuple(map_tree(value, f"input.{i}", self._argument) for i, value in enumerate(self._call.args)),
            kwargs={
                name: map_tree(value, f"kwargs.{name}", self._argument) for name, value in self._call.kwargs.items()
            },
            gradients=None
            if gradients is None
            else tuple(None if spec is None else self._leaf(spec, f"grad.{i}") for i, spec in enumerate(gradients)),
        )

    def _argument(self, value: Argument, path: str) -> Argument:
        if not isinstance(value, TensorSpec):
            return value
        leaf = self._leaf(value, path)
        return Array(leaf.array) if value.ndarray else leaf

    def _leaf(self, spec: TensorSpec, path: str) -> Leaf:
        # What was one tensor in the program has one array of values here.
        first = self._first.get(path, path)
        values = self._made.get(first)
        if values is None:
            values = self._made[first] = round_to_dtype(self._values(spec, first), self._target(spec))
        return Leaf(values, spec.requires_grad, spec.stride if is_layout(spec) else None, offset(spec))

    def _target(self, spec: TensorSpec) -> str:
        kind = kind_of(spec.dtype)
        if self._dtype is None or spec.ndarray or kind not in ("float", "complex"):
            return spec.dtype
        return self._dtype if kind == "float" else _COMPLEX_OF.get(self._dtype, spec.dtype)

    def _values(self, spec: TensorSpec, path: str) -> AnyArray:
        if self._kind != "generated" and spec.data_name is not None:
            return self._files.array(spec, *self._files.place(self._record, path))
        if self._kind == "stored":
            entry, field = self._files.place(self._record, path)
            raise Unsupported(
                f"{self._files.dump_path}: {entry}: {field}: no tensor was stored, and --probe-inputs=stored was given",
                kind="no stored tensors",
            )
        if self._kind != "generated" and spec.values is not None:
            return np.array(spec.values, spec.dtype).reshape(spec.shape)
        return self._generated(spec, path)

    def _generated(self, spec: TensorSpec, path: str) -> AnyArray:
        own, stream, role = without_repeats(spec), self._streams.at(_stream(path)), self._roles.get(path)
        if role is not None and own.size:
            values = self._of_role(role, own, stream, path)
        elif kind_of(spec.dtype) == "float" and is_planted(self._bound, path):
            values = generate(supposed(own), stream)
            plant(values, own, stream)
        else:
            values = generate(own, stream)
        return values if own is spec else np.array(np.broadcast_to(values, spec.shape))

    def _of_role(self, role: Role, spec: TensorSpec, stream: np.random.Generator, path: str) -> AnyArray:
        try:
            return role.make(spec, stream)
        except NoValues as error:
            entry, field = self._files.place(self._record, path)
            found, wanted = "a tensor whose values were not stored", "its values, which are a size"
            raise LostArgument(self._files.dump_path, entry, field, found, wanted) from error

    def _same_tensors(self) -> dict[str, str]:
        """For each argument that is the same tensor as another, the one whose values both have: the first that has a
        role, else the first."""
        first: dict[object, str] = {}
        found: dict[str, object] = {}
        for root, tree in (("input", self._call.args), ("kwargs", self._call.kwargs)):
            for path, spec in named_tensors(tree, root):
                if spec.address and spec.size:
                    found[path] = key = (spec.address, spec.dtype, spec.shape, spec.stride)
                    # An index that is passed twice must be one in both places.
                    if key not in first or (path in self._roles and first[key] not in self._roles):
                        first[key] = path
        return {path: first[key] for path, key in found.items()}
