"""Templates around records: by the table where its patterns fit, else by the sizes that are equal in all records; which
sizes a call needs as they are is found by trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_probe.features.fuzz.drawn import DrawnCall, DrawnTensor, fitted
from pytest_probe.features.fuzz.regimes import RECORDED
from pytest_probe.features.fuzz.templates import (
    Choice,
    DimOf,
    Entry,
    Key,
    Pattern,
    SizeOf,
    Sizes,
    Template,
    TensorSlot,
    entry_of,
    plain_slot,
    tensor_slot,
)
from pytest_probe.features.fuzz.trial import Trials
from pytest_probe.frameworks.base import Signatures
from pytest_probe.inputs.generated import kind_of
from pytest_probe.model.dump import Call, Lost, TensorSpec, leaves
from pytest_probe.model.run import BoundCall, map_tree

# Records of an API that are drawn around, each of another structure or other sizes.
_MAX_RECORDS = 8
# For an API in no table, nobody knows what products and sums it forms inside.
_UNKNOWN_POWER, _UNKNOWN_FEW = 4.0, 256


def learnt(api: str, signatures: Signatures, calls: Sequence[Call], dtypes: tuple[str, ...] = ()) -> list[Template]:
    """Templates of an API's records; dtypes: the floating ones to draw in place of the recorded."""
    entry, found = entry_of(api, signatures), dict[str, Template]()
    for call in calls:
        if any(isinstance(value, Lost) for _, value in (*leaves(call.args), *leaves(dict(call.kwargs)))):
            continue
        bound = signatures.bind(api, call.args, call.kwargs)
        template = _by_table(entry, bound, call, signatures) if entry is not None else None
        template = template or _by_sizes(api, signatures, call)
        template = _with_dtypes(template, call, dtypes)
        found.setdefault(repr((template.slots, template.arguments)), template)
    return list(found.values())[:_MAX_RECORDS]


def _around(template: Template, sizes: Sizes) -> DrawnCall:
    """The call of a template's record, with other sizes."""
    dtype = next(iter(template.dtypes), "")

    def value(slot: Any) -> Any:
        if isinstance(slot, TensorSlot):
            return DrawnTensor(slot.pattern.shape(sizes), slot.dtype or dtype, regime=RECORDED, recorded=slot.recorded)
        if isinstance(slot, SizeOf):
            size = sizes[slot.symbol]
            return list(size) if isinstance(size, tuple) else size
        return slot.values[0] if isinstance(slot, Choice) else slot.recorded[0]

    def filled(leaf: Any, _: str) -> Any:
        return value(template.slots[leaf.name]) if isinstance(leaf, Key) else leaf

    assert template.arguments is not None
    args, kwargs = (map_tree(tree, "", filled) for tree in template.arguments)
    return fitted(DrawnCall(template.api, args, kwargs, 0, template.signatures, template.limits))


def _by_table(entry: Entry, bound: BoundCall, call: Call, signatures: Signatures) -> Template | None:
    """The template by the table; None where the record is not a call that the table describes."""
    slots: dict[str, Any] = {}
    anchors: dict[str, int | tuple[int, ...]] = {}
    for name, text in entry.tensors.items():
        spec, slot = bound.given.get(name), tensor_slot(text)
        if not isinstance(spec, TensorSpec):
            if spec is None and (slot.optional or name not in bound.given):
                continue
            if slot.many or isinstance(spec, (list, tuple)):
                return None
            slots[bound.paths[name]] = Choice((spec,))
            continue
        sizes = slot.pattern.read(spec.shape)
        if sizes is None or any(anchors.get(symbol, size) != size for symbol, size in sizes.items()):
            return None
        anchors |= sizes
        dtype = slot.dtype or ("" if kind_of(spec.dtype) == "float" else spec.dtype)
        slots[bound.paths[name]] = replace(slot, dtype=dtype, recorded=spec)
    tensors = {path for path, _ in call.tensors()}
    if not tensors or tensors - slots.keys():
        return None
    places = {name: bound.paths[name] for name in entry.tensors if name in bound.paths}
    fixed = set()
    for name, rule in entry.plain.items():
        plain, value = plain_slot(rule), bound.given.get(name)
        if isinstance(plain, SizeOf) and plain.symbol not in anchors and not plain.as_list:
            # A size that no shape alone gives, such as the groups of a convolution; it is 1 where it is left out.
            anchors[plain.symbol] = value if type(value) is int else 1
            fixed |= set() if name in bound.given else {plain.symbol}
        plain = _recorded_plain(plain, value, places, anchors)
        if plain is not None and name in bound.given:
            slots[bound.paths[name]] = plain
    template = Template(bound.api, signatures, slots, _keyed(call, slots), anchors, entry.sizes)
    return replace(template, fixed=frozenset(fixed), **entry.limits)


def _recorded_plain(slot: Any, value: Any, places: Mapping[str, str], anchors: Sizes) -> Any:
    """The slot of a plain argument that a record has; None where it stays as recorded."""
    if isinstance(slot, Choice):
        others = (other for other in slot.values if type(other) is type(value) and other != value)
        return Choice((value, *others)) if not isinstance(value, (list, tuple)) else None
    if isinstance(slot, DimOf):
        fits = type(value) is int if slot.kind == "dim" else value is None or type(value) in (int, list, tuple)
        return replace(slot, tensor=places[slot.tensor], recorded=(value,)) if fits and slot.tensor in places else None
    wanted = anchors.get(slot.symbol)
    same = list(wanted) == list(value) if isinstance(wanted, tuple) and isinstance(value, (list, tuple)) else None
    return slot if same or wanted == value else None


def _by_sizes(api: str, signatures: Signatures, call: Call) -> Template:
    """Sizes that are equal in a record stay equal; 1 and 0 stay as they are."""
    slots: dict[str, Any] = {}
    anchors: dict[str, int | tuple[int, ...]] = {}
    for path, spec in call.tensors():
        words = [str(extent) if extent < 2 else f"d{extent}" for extent in spec.shape]
        anchors |= {f"d{extent}": extent for extent in spec.shape if extent > 1}
        dtype = "" if kind_of(spec.dtype) == "float" else spec.dtype
        slots[path] = TensorSlot(Pattern(tuple(words)), dtype, recorded=spec)
    template = Template(api, signatures, slots, _keyed(call, slots), anchors)
    return replace(template, power=_UNKNOWN_POWER, few=_UNKNOWN_FEW)


def _with_dtypes(template: Template, call: Call, dtypes: tuple[str, ...]) -> Template:
    """Floating tensors have the dtype that is drawn, unless a record mixes several: then each keeps its own."""
    recorded = dict.fromkeys(spec.dtype for _, spec in call.tensors() if kind_of(spec.dtype) == "float")
    if len(recorded) < 2:
        return replace(template, dtypes=dtypes or tuple(recorded))
    slots = {
        key: replace(slot, dtype=slot.recorded.dtype)
        if isinstance(slot, TensorSlot) and slot.recorded is not None
        else slot
        for key, slot in template.slots.items()
    }
    return replace(template, slots=slots, dtypes=tuple(recorded)[:1])


def _keyed(call: Call, slots: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The call's arguments with a Key in each place of a slot."""

    def value(tree: Any, path: str) -> Any:
        if path in slots:
            return Key(path)
        if isinstance(tree, (list, tuple)):
            return type(tree)([value(item, f"{path}.{place}") for place, item in enumerate(tree)])
        if isinstance(tree, Mapping):
            return {name: value(item, f"{path}.{name}") for name, item in tree.items()}
        return tree

    args = tuple(value(item, f"input.{place}") for place, item in enumerate(call.args))
    return args, {name: value(item, f"kwargs.{name}") for name, item in call.kwargs.items()}


def fit_sizes(trials: Trials, template: Template) -> Template | None:
    """The template with the sizes fixed that the call needs as they are; None where the reference does not even take
    the record's own."""
    if template.arguments is None or _rejected(trials, template, template.anchors):
        return None if template.arguments is not None else template
    needed = set(template.fixed)
    for symbol, size in template.anchors.items():
        if isinstance(size, int) and size > 1 and symbol.startswith("d"):
            others = ({**template.anchors, symbol: other} for other in (size + 1, size - 1))
            if any(_rejected(trials, template, sizes) for sizes in others):
                needed.add(symbol)
    return replace(template, fixed=frozenset(needed))


def _rejected(trials: Trials, template: Template, sizes: Sizes) -> str:
    drawn = _around(template, sizes)
    call = drawn.call()
    return trials.judged(call, drawn.arguments(call), drawn.with_seed).rejected
