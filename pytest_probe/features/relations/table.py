"""Which relations an API has, and along which dimensions its rows lie: the packaged table, and what users add;
and what a relation is, of which call it is asked, and what that leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import yaml
from msgspec import Meta, Struct, convert, field
from msgspec.structs import replace

from pytest_probe.check import CaseOutcome, call_again
from pytest_probe.check.call_again import LEFT_OUT, DifferingOutput
from pytest_probe.check.engines import Engines
from pytest_probe.errors import Unsupported
from pytest_probe.model.run import Leaf
from pytest_probe.model.verdict import Outcome
from pytest_probe.system.decoding import decode

if TYPE_CHECKING:
    from pytest_probe.registry import Registry


# A dimension, or words for several.
Dimensions: TypeAlias = int | Annotated[str, Meta(pattern=r"^(:|:-\w+|~\w+)$")]
_BATCH = Meta(description='give by argument a dimension (0), ":", ":-2", ":-normalized_shape" or "~dim", as {"x": 0}')
Argument: TypeAlias = Callable[[str], Any]
# What a user's row is called in errors.
_WHERE = "registry.relations"


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of an API. batch has the dimensions that are rows, by argument; inplace and out say that it has
    such a twin, alias names two arguments that may be one tensor; whole_memory: it may read all of the memory that its
    tensors are views of."""

    batch: Annotated[Mapping[str, Dimensions], _BATCH] = field(default_factory=dict)
    inplace: bool = False
    out: bool = False
    alias: tuple[str, ...] = ()
    layout: bool = True
    nondeterministic: bool = False
    whole_memory: bool = False


class _Rows(Struct, frozen=True, forbid_unknown_fields=True):
    apis: str
    rows: dict[str, Dimensions]


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    batch: list[_Rows]
    inplace: str
    out: str
    out_of: dict[str, str]
    alias: dict[str, tuple[str, str]]
    nondeterministic: dict[str, str]
    whole_memory: str


@functools.cache
def _table() -> _Table:
    text = files(__package__).joinpath("table.yaml").read_text(encoding="utf-8")
    return convert(yaml.safe_load(text), _Table)


@functools.cache
def _rows() -> Mapping[str, Row]:
    table, found = _table(), dict[str, Row]()

    def put(names: str, **fields: Any) -> None:
        for name in names.split():
            found[name] = replace(found.get(name, Row()), **fields)

    for each in table.batch:
        put(each.apis, batch=each.rows)
    for names, pair in table.alias.items():
        put(names, alias=pair)
    put(table.inplace, inplace=True)
    put(table.out, out=True)
    put(table.whole_memory, whole_memory=True)
    return found


def row(name: str, api: str, device: str, users: Mapping[str, Any]) -> Row:
    """That of an API by its canonical name, or a user's by the name that a dump gives it. Raises SettingsError."""
    if api in users:
        return decode(users[api], Row, lambda _: f"{_WHERE}[{api!r}]")
    known = _rows().get(name, Row())
    if device.startswith("cpu"):
        return known
    return replace(known, nondeterministic=name in _table().nondeterministic["*"].split())


def of_out(namespace: str) -> str:
    """The namespace whose functions take `out` for what is in this one; "" where none is known to."""
    return _table().out_of.get(namespace, "")


def of_methods(namespace: str) -> str:
    """The namespace that has the methods of functions in this one, which write in place where functions do not."""
    pairs = _table().out_of.items()
    return next((name for name, functions in pairs if functions == namespace != name), namespace)


def row_axes(dimensions: Dimensions, leaf: Leaf, argument: Argument) -> tuple[int, ...]:
    """The axes of a tensor that are rows, in their order. Raises LookupError where it has no such dimension."""
    ndim = leaf.array.ndim
    if isinstance(dimensions, int):
        if not -ndim <= dimensions < ndim:
            raise LookupError(f"a tensor of {ndim} dimensions has no dimension {dimensions}")
        return (dimensions % ndim,)
    if dimensions.startswith("~"):
        named = argument(dimensions[1:])
        if named is None:
            raise LookupError(f"the call names no {dimensions[1:]}, so that all of it is one row")
        others = {axis % max(ndim, 1) for axis in ([named] if isinstance(named, int) else named)}
        return tuple(axis for axis in range(ndim) if axis not in others)
    count = dimensions[2:]
    if count and not count.isdigit():
        shape = argument(count)
        if shape is None:
            raise LookupError(f"the call names no {count}")
        return tuple(range(ndim - (1 if isinstance(shape, int) else len(shape))))
    return tuple(range(ndim - int(count or 0)))


def checked(users: Mapping[str, Any]) -> None:
    """Can all rows of users be read? Raises SettingsError."""
    for api in users:
        row("", api, "cpu", users)


# The context in which an argument may end the process, which has a name.
AtRisk: TypeAlias = Callable[[str], AbstractContextManager[None]]


class Call(call_again.Call):
    """at_risk: what a call is made in that may end the process; None where nobody would see that."""

    def __init__(
        self, checked: CaseOutcome, engines: Engines, row: Row, registry: Registry, at_risk: AtRisk | None
    ) -> None:
        super().__init__(checked, engines)
        self.row, self.registry, self.at_risk = row, registry, at_risk
        # What the relations of memory have observed.
        self.memory: Any = None


class Found(Struct, frozen=True):
    """broken says how the relation is broken, "" where it holds; apart is the output that shows it, if one does; runs
    counts the calls that were made; unasked says what of it could not be asked."""

    broken: str = ""
    apart: DifferingOutput | None = None
    runs: int = 0
    unasked: str = ""


class Relation:
    """One relation: broken is the outcome of a case that breaks it."""

    name: str
    broken: Outcome = "error"

    def unfit(self, call: Call) -> str:
        """Why it is not asked of such a call; "" where it is."""
        return ""

    def find(self, call: Call) -> Found:
        """Ask it. Raises Unsupported where that cannot be done, and what the device raises."""
        raise NotImplementedError


def left_out(why: str) -> NoReturn:
    """Raises Unsupported."""
    raise Unsupported(why, LEFT_OUT)
