"""--probe-against-map: what the other side calls the modules and calls of this one, and how it holds their tensors.

names:                                   # A's name: B's, by globs; `*` stands for the same text on both sides
  "layers.*.attention": "blocks.*.attn"
concat:                                  # modules of A that are one module of B, in this order
  - {from: [q_proj, k_proj, v_proj], to: qkv_proj}
split:                                   # a module of A that is several of B
  - {from: gate_up_proj, to: [gate_proj, up_proj]}
ignore: ["*.rotary_emb*"]                # entries and modules of both sides that are left out
dims:                                    # entries whose tensors a side's ranks hold in parts
  "Functional.linear.3": "b s h[tp]"     # the dimension in brackets is divided; or "partial": parts are summed
  "*": auto                              # found from the shapes
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.features.against.sides import TENSORS, AnyTensor, Composed, Side, Values, compared
from pytest_probe.model.dump import Dump, Record
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.records import module_path
from pytest_probe.system.decoding import MAPPING
from pytest_probe.system.yaml_file import read_yaml

_STARS = re.compile(r"\*+")
_DIMS = re.compile(r"auto|partial|(?:\w+(?:\[\w+\])?)(?: \w+(?:\[\w+\])?)*")
_DIMS_ADVICE = 'give "auto", "partial", or a letter for each dimension with the divided one in brackets, as "b s h[tp]"'
_ONE, _SEVERAL = "give the name of one module", "give a list of two modules or more, as [q_proj, k_proj, v_proj]"


class Layout(Struct, frozen=True):
    """How ranks hold a tensor: divided along dim, None for what the shapes say; or in parts that are summed."""

    dim: int | None = None
    partial: bool = False


class Fusion(Struct, frozen=True):
    """Several modules of one side are one of the other; of_a: they are A's."""

    parts: tuple[str, ...]
    whole: str
    of_a: bool


class DumpMap(Struct, frozen=True):
    """names renames parts of A's names, ignored are globs, layouts go by globs of entries."""

    names: tuple[tuple[re.Pattern[str], str], ...] = ()
    fusions: tuple[Fusion, ...] = ()
    ignored: tuple[str, ...] = ()
    layouts: Mapping[str, Layout] = {}
    # The globs of names as they were written.
    written: tuple[str, ...] = ()

    def renamed(self, name: str) -> str:
        """The other side's name of a module or record of A: the first rule that fits counts."""
        for pattern, other in self.names:
            found = pattern.search(name)
            if found:
                # Literal text and the texts that `*` stood for, in turn.
                pieces = other.split("*")
                texts = [*found.groups()[: len(pieces) - 1], *[""] * len(pieces)]
                inside = "".join(piece + text for piece, text in zip(pieces, texts, strict=False))
                return name[: found.start()] + inside + name[found.end() :]
        return name

    def unused(self, names: Sequence[Collection[str]], fused: Collection[Fusion]) -> list[str]:
        """The rules that nothing matches: names are those of A's and of B's entries and modules, fused the fusions that
        joined something."""
        a, both = names[0], [*names[0], *names[1]]
        rules = zip(self.written, self.names, strict=True)
        found = [f"names: {rule}" for rule, (pattern, _) in rules if not any(map(pattern.search, a))]
        found += [f"{'concat' if rule.of_a else 'split'}: {rule.whole}" for rule in self.fusions if rule not in fused]
        globs = [("ignore", glob) for glob in self.ignored] + [("dims", glob) for glob in self.layouts]
        return found + [f"{key}: {glob}" for key, glob in globs if not any(fnmatchcase(name, glob) for name in both)]

    def ignores(self, *names: str) -> bool:
        """Is one of an entry's or a module's names left out?"""
        return any(fnmatchcase(name, glob) for glob in self.ignored for name in names)

    def layout_of(self, *names: str) -> Layout | None:
        """That of an entry; None where the map says none."""
        return next((found for glob, found in self.layouts.items() if any(fnmatchcase(n, glob) for n in names)), None)


class _Concat(Struct, frozen=True, forbid_unknown_fields=True):
    parts: Annotated[tuple[str, ...], Meta(min_length=2, description=_SEVERAL)] = field(name="from")
    whole: Annotated[str, Meta(min_length=1, description=_ONE)] = field(name="to")


class _Split(Struct, frozen=True, forbid_unknown_fields=True):
    whole: Annotated[str, Meta(min_length=1, description=_ONE)] = field(name="from")
    parts: Annotated[tuple[str, ...], Meta(min_length=2, description=_SEVERAL)] = field(name="to")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    names: Annotated[dict[str, str], Meta(description=MAPPING)] = {}
    concat: Annotated[list[Any], Meta(description="give a list of mappings with `from` and `to`")] = []
    split: Annotated[list[Any], Meta(description="give a list of mappings with `from` and `to`")] = []
    ignore: Annotated[tuple[str, ...], Meta(description="give a list of globs")] = ()
    dims: Annotated[dict[str, str], Meta(description=MAPPING)] = {}


def read_map(path: Path) -> DumpMap:
    """Raises SettingsError, which names file and line."""
    file = read_yaml(path, "names")
    if file is None:
        return DumpMap()
    found = file.decoded(file.content, _File)
    concat = [file.decoded(item, _Concat, ("concat", number)) for number, item in enumerate(found.concat)]
    split = [file.decoded(item, _Split, ("split", number)) for number, item in enumerate(found.split)]
    layouts = {}
    for glob, dims in found.dims.items():
        if not _DIMS.fullmatch(dims) or dims.count("[") > 1:
            raise SettingsError(f"{file.place(('dims', glob))}: dims: {glob}", dims, _DIMS_ADVICE)
        divided = next((place for place, letter in enumerate(dims.split(" ")) if "[" in letter), None)
        layouts[glob] = Layout(divided, partial=dims == "partial")
    return DumpMap(
        tuple((_inside(_STARS.sub("*", glob)), _STARS.sub("*", other)) for glob, other in found.names.items()),
        (
            *(Fusion(rule.parts, rule.whole, of_a=True) for rule in concat),
            *(Fusion(rule.parts, rule.whole, of_a=False) for rule in split),
        ),
        found.ignore,
        layouts,
        tuple(found.names),
    )


def _inside(glob: str) -> re.Pattern[str]:
    """Finds what a glob matches between the dots of a name; `*` is one part of it."""
    first, *pieces = map(re.escape, glob.split("*"))
    end = r"(?=\.|$)"
    # In a lookahead a star stands for the shortest text that fits, and no other is tried: many stars would take years.
    stars = (
        rf"(?=(?P<s{number}>[^.]*?){piece}{end * (number == len(pieces))})(?P=s{number}){piece}"
        for number, piece in enumerate(pieces, 1)
    )
    return re.compile(rf"(?:(?<=\.)|^){first}{''.join(stars)}{end}")


# The module around, the API, and which call of it in that module.
_Place: TypeAlias = tuple[str, str, int]


def fused(a: Dump, b: Dump, given: DumpMap) -> Iterator[tuple[Fusion, tuple[Record, ...], Record]]:
    """For each rule and each place where both sides have its calls: the rule, the parts in its order, and the whole."""
    for rule in given.fusions:
        parts_of, whole_of = (a, b) if rule.of_a else (b, a)
        to_parts, to_whole = (given.renamed, str) if rule.of_a else (str, given.renamed)
        wholes = _places(whole_of, rule.whole, to_whole)
        parts = [_places(parts_of, name, to_parts) for name in rule.parts]
        for place, whole in wholes.items():
            if all(place in found for found in parts):
                yield rule, tuple(found[place] for found in parts), whole


def _places(dump: Dump, name: str, renamed: Callable[[str], str]) -> dict[_Place, Record]:
    """The calls in modules of a name, each by its place."""
    found: dict[_Place, Record] = {}
    numbers = Counter[tuple[str, str]]()
    for record in (*dump.records, *dump.compare_only):
        around, _, own = module_of(record, dump).rpartition(".")
        if own == name:
            # A module's class, or an API.
            key = renamed(around), f"{record.namespace}.{record.api.rpartition('.')[2]}"
            found[(*key, numbers[key])] = record
            numbers[key] += 1
    return found


def names_of(dump: Dump) -> set[str]:
    """What the globs of a map are matched with: entries, records and modules."""
    records = (*dump.records, *dump.compare_only)
    ways = ("", ".forward", ".backward")
    return {module_of(record, dump) for record in records} | {f"{each.name}{way}" for each in records for way in ways}


def module_of(record: Record, dump: Dump) -> str:
    """The path of the module that a record is, or whose call it is, without wrappers; "" where the dump has none."""
    if record.namespace in ("Module", "Cell"):
        return plain_module(record.api.rpartition(".")[0])
    modules = dump.modules(f"{record.name}.forward")
    return plain_module(module_path(modules[0])) if modules else ""


# What wrappers put before the names of a module's parts: torch.compile, FSDP, DistributedDataParallel.
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.")
# What compilers and FSDP make of a class's name.
_CLASSES = re.compile(r"(?<=\.)(?:FSDP|OptimizedModule|DistributedDataParallel|DDP)(?=[A-Z][a-z])")


def plain_module(name: str) -> str:
    """A module's name, as "Module.layers.0.fc.Linear.0", without what wrappers add to it."""
    start, dot, rest = name.partition(".")
    if not dot or start not in ("Module", "Cell"):
        return _CLASSES.sub("", _WRAPPERS.sub("", name))
    return f"{start}.{_CLASSES.sub('', _WRAPPERS.sub('', rest))}"


def joined(parts: Sequence[Side], whole: Side, layout: Layout | None = None) -> Side:
    """Several records of one side as one record of the other side is: tensors one after the other where their shapes
    add up to the other side's; summed where they are gradients of that shape, or `partial`; else those of the first,
    where all are equal."""

    def of(values: Sequence[Values], other: Values) -> Values:
        return {name: _joined([each.get(name) for each in values], other.get(name), name, layout) for name in values[0]}

    inputs, outputs = (
        of([part.inputs for part in parts], whole.inputs),
        of([part.outputs for part in parts], whole.outputs),
    )
    return replace(parts[0], inputs=inputs, outputs=outputs)


def _joined(parts: Sequence[Any], whole: Any, name: str, layout: Layout | None) -> Any:
    if not isinstance(whole, TENSORS) or not all(isinstance(part, TENSORS) for part in parts):
        return parts[0]
    shapes, has_values = [part.shape for part in parts], all(part.has_values for part in parts)
    if all(shape == whole.shape for shape in shapes):
        summed = name.startswith("grad.") or (layout is not None and layout.partial)
        if summed:
            return Composed(parts[0].dtype, whole.shape, has_values, lambda: _sum(parts))
        # A mean of each part, for one, says nothing of the mean of all.
        return parts[0] if all(compared(part, parts[0]).agrees for part in parts[1:]) else None
    dims = [] if len({len(shape) for shape in (*shapes, whole.shape)}) > 1 else range(len(whole.shape))
    fitting = []
    for dim in dims:
        others = {(*shape[:dim], *shape[dim + 1 :]) for shape in (*shapes, whole.shape)}
        if len(others) == 1 and sum(shape[dim] for shape in shapes) == whole.shape[dim]:
            fitting.append(dim)
    if not fitting:
        return parts[0]
    axis = layout.dim if layout is not None and layout.dim in fitting else fitting[0]
    return Composed(
        parts[0].dtype, whole.shape, has_values, lambda: np.concatenate([part.array() for part in parts], axis=axis)
    )


def _sum(parts: Sequence[AnyTensor]) -> AnyArray:
    arrays = [part.array() for part in parts]
    return np.asarray(sum(widen(array) for array in arrays)).astype(arrays[0].dtype)


def cut(whole: Side, part: Side, index: int, count: int) -> Side:
    """The side that holds all, as the index-th of `count` ranks of the other side holds it."""

    def of(values: Values, own: Values) -> Values:
        return {name: _cut(value, own.get(name), index, count) for name, value in values.items()}

    return replace(whole, inputs=of(whole.inputs, part.inputs), outputs=of(whole.outputs, part.outputs))


def _cut(whole: Any, part: Any, index: int, count: int) -> Any:
    if not isinstance(whole, TENSORS) or not isinstance(part, TENSORS) or len(whole.shape) != len(part.shape):
        return whole
    divided = [dim for dim, (all, own) in enumerate(zip(whole.shape, part.shape, strict=True)) if all != own]
    if len(divided) != 1 or whole.shape[divided[0]] != count * part.shape[divided[0]]:
        return whole
    return Composed(
        whole.dtype, part.shape, whole.has_values, lambda: np.split(whole.array(), count, axis=divided[0])[index]
    )
