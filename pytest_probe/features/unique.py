"""--probe-unique: of items whose records are alike the first one runs."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.inputs.memory import ALIGNED
from pytest_probe.model.dump import Argument, Call, DeviceSpec, Dump, Record, TensorSpec, named_tensors
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import deselect


class Unique(Feature):
    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Records are folded over all dumps of the run, also where single items of them were named: a case that is run
        again by itself is then the same one. An item whose first record does not run here stays itself."""
        probe = self.probe
        found = {item.dump_path: item.case.dump for item in items if isinstance(item, ProbeItem)}
        # In the order in which they were given: another plugin may have shuffled the items.
        in_order = [path for path in probe.dumps.paths if path in found]
        dumps = {path: found[path] for path in (*in_order, *sorted(found.keys() - in_order))}
        folds = Folds(probe.settings.inputs not in ("generated", "exact"))
        admits = probe.settings.selection.admits
        for dump in dumps.values():
            folds.add(
                dump, (record for record in dump.records if any(admits(record, way) for way in record.directions))
            )
        folded = {path: folds.folded(dump) for path, dump in dumps.items()}
        globs = (("api", probe.settings.selection.apis), ("skip-api", probe.settings.selection.skip_apis))
        words = [f"{NAMED['dump'].flag}={shlex.quote(str(path))}" for path in dumps]
        words += [f"{NAMED[name].flag}={shlex.quote(glob)}" for name, given in globs for glob in given]
        run_here = {_key(item) for item in items if isinstance(item, ProbeItem)}
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        pairs = [(item, folds.of(item.case.record) if isinstance(item, ProbeItem) else None) for item in items]
        # A call of a step that is folded with one that builds the model is run as a step's.
        of_steps = {id(whole) for item, whole in pairs if isinstance(item, ProbeItem) and not item.initialises}
        for item, whole in pairs:
            if not isinstance(item, ProbeItem) or whole is None:
                kept.append(item)
            elif whole.record is item.case.record:
                item.case = replace(item.case, dump=folded[item.dump_path])
                item.folded = whole.others
                item.initialises = item.initialises and id(whole) not in of_steps
                if whole.others:
                    name = shlex.quote(f"{item.case.record.name}.{item.case.direction}")
                    item.command = " ".join([*words, "-k", name])
                kept.append(item)
            else:
                of_first = (id(whole.record), *_key(item)[1:])
                (left if of_first in run_here else kept).append(item)
        deselect(session.config, left)
        items[:] = kept


def _key(item: ProbeItem) -> tuple[int, str, str | None]:
    return id(item.case.record), item.case.direction, item.case.dtype


class DuplicateGroup(Struct):
    """Records that are alike: the first one, the call that represents all, how many others there are. norm is the
    largest norm of a whole call, where stored tensors are taken from one record."""

    dump: Dump
    record: Record
    call: Call | None = None
    others: int = 0
    norm: float = -1.0


class Folds(Struct):
    """The folds of a run. stored: tensors that a dump stores are inputs, so that a call has all of its from one record,
    and records of one dump alone are alike."""

    stored: bool
    _by_key: dict[bytes, DuplicateGroup] = field(default_factory=dict)
    _first: dict[int, DuplicateGroup] = field(default_factory=dict)

    def add(self, dump: Dump, records: Iterable[Record]) -> None:
        for record in records:
            if (call := dump.readable(record)) is None:
                continue
            content = repr(self._key(dump, record, call)).encode(errors="replace")
            key = hashlib.blake2b(content, digest_size=16).digest()
            fold = self._first[id(record)] = self._by_key.setdefault(key, DuplicateGroup(dump, record))
            if fold.record is not record:
                fold.others += 1
                self._take(fold, call)

    def of(self, record: Record) -> DuplicateGroup | None:
        """The fold that a record belongs to; None where it could not be decoded."""
        return self._first.get(id(record))

    def folded(self, dump: Dump) -> Dump:
        """The dump, with each first record's call replaced by that of its fold."""

        def decoded(record: Record) -> Call:
            fold = self.of(record)
            if fold is None or fold.record is not record or fold.call is None:
                return dump.decode(record)
            return fold.call

        return replace(dump, decode=decoded)

    def _take(self, fold: DuplicateGroup, call: Call) -> None:
        before = fold.call if fold.call is not None else fold.dump.decode(fold.record)
        if self.stored and _is_stored(before):
            fold.norm = max(fold.norm, _norm(before))
            if _norm(call) > fold.norm:
                fold.call, fold.norm = call, _norm(call)
            return
        # For each tensor the one of larger norm, with the larger Max and the smaller Min of both.
        gradients = before.gradients
        if before.gradients is not None and call.gradients is not None:
            gradients = _widened(before.gradients, call.gradients)
        args, kwargs = _widened(before.args, call.args), _widened(dict(before.kwargs), dict(call.kwargs))
        fold.call = replace(before, args=args, kwargs=kwargs, gradients=gradients)

    def _key(self, dump: Dump, record: Record, call: Call) -> tuple[Any, ...]:
        place = (str(dump.path),) if self.stored and _is_stored(call) else ()
        fingerprint = _Fingerprint(record.name)
        return (
            dump.framework,
            f"{record.namespace}.{record.api}",
            place,
            fingerprint.tree(call.args),
            fingerprint.tree(dict(call.kwargs)),
            fingerprint.outputs(call.outputs),
            fingerprint.tree(call.gradients),
            call.seeded,
            None if call.outgoing is None else sorted((name, value is None) for name, value in call.outgoing.items()),
            call.unrecorded != "",
            repr(call.surroundings),
            # What was not recorded may differ.
            record.name if call.partial else "",
        )


class _Fingerprint:
    """What must be equal in calls that are alike. Tensors that share memory share it in all of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._addresses: dict[int, int] = {}

    def tree(self, value: Argument) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value).__name__, [self.tree(item) for item in value]
        if isinstance(value, Mapping):
            return [(key, self.tree(item)) for key, item in value.items()]
        if isinstance(value, TensorSpec):
            return self.tensor(value)
        # The device under test takes its place.
        return "device" if isinstance(value, DeviceSpec) else (type(value).__name__, repr(value))

    def outputs(self, value: Argument) -> Any:
        """A number that a call returned follows from its arguments, which need not be equal."""
        if isinstance(value, (list, tuple)):
            return [self.outputs(item) for item in value]
        return "float" if isinstance(value, (float, complex)) else self.tree(value)

    def tensor(self, spec: TensorSpec) -> tuple[Any, ...]:
        address = None if spec.address is None else self._addresses.setdefault(spec.address, len(self._addresses))
        layout = spec.shape, spec.stride, (spec.address or 0) % ALIGNED, address
        values: tuple[Any, ...]
        if spec.dtype == "bool":
            values = ("some" if spec.true not in (None, 0, spec.size) else spec.true,)
        elif not is_inexact(spec.dtype):
            # What lies in a file is equal to itself alone: files are not opened here.
            values = spec.values, self._name if spec.values is None and spec.data_name is not None else ""
        else:
            # Which limits are infinite or NaN counts, what the others are does not.
            limits = (spec.max, spec.min, spec.norm)
            odd = [None if value is None or math.isfinite(value) else repr(value) for value in limits]
            counts = tuple(None if count is None else bool(count) for count in (spec.nan, spec.inf, spec.negative_inf))
            masses = spec.zeros is None, bool(spec.zeros), spec.mode is None, spec.constant_rows is None
            values = (not any(odd), tuple(odd) if any(odd) and spec.nan is None else (), *counts, *masses)
        return spec.dtype, *layout, spec.requires_grad, spec.ndarray, spec.data_name is None, values


def _widened(one: Argument, other: Argument) -> Any:
    if isinstance(one, (list, tuple)):
        return type(one)([_widened(*pair) for pair in zip(one, other, strict=True)])
    if isinstance(one, Mapping):
        return {key: _widened(one[key], other[key]) for key in one}
    return widened_spec(one, other) if isinstance(one, TensorSpec) else one


def widened_spec(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    """The tensor of the larger norm, with the range of both."""
    larger = other if (other.norm or 0.0) > (one.norm or 0.0) else one
    if one.dtype == "bool":
        return larger
    wide = {
        "max": _extreme(max, one.max, other.max),
        "min": _extreme(min, one.min, other.min),
        "high": _extreme(max, one.high, other.high),
        "low": _extreme(min, one.low, other.low),
        "address": one.address,
    }
    # Mostly nothing changes, and a new tensor costs more than a look at it.
    changed = {name: value for name, value in wide.items() if value != getattr(larger, name)}
    return replace(larger, **changed) if changed else larger


def _extreme(choose: Callable[[Sequence[Any]], Any], *values: Any) -> Any:
    known = [value for value in values if value is not None]
    return choose(known) if known and not any(math.isnan(value) for value in known) else next(iter(known), None)


def _tensors(call: Call) -> list[TensorSpec]:
    return [spec for _, spec in (*call.tensors(), *named_tensors(call.gradients or ()))]


def _is_stored(call: Call) -> bool:
    return any(spec.data_name is not None for spec in _tensors(call))


def _norm(call: Call) -> float:
    """2-norm of all floating tensors together, without the norms that are not finite."""
    norms = [spec.norm for spec in _tensors(call) if is_inexact(spec.dtype) and spec.norm is not None]
    return math.hypot(*(norm for norm in norms if math.isfinite(norm)))
