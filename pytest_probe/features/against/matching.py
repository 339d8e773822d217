"""Which record of one dump is which of the other: by name, else by the order of calls that are alike.

Names decide where both dumps made the same calls of each API. Otherwise an extra call has moved the numbers of all that
follow: records are then aligned. Calls with equal inputs that occur once on each side are fixed points (a patience
diff); between them a shortest edit script (E. Myers, An O(ND) Difference Algorithm, 1986) pairs calls of one API,
shapes and module. What is left is paired by its name, or stays alone: nothing is dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.features.against.dump_map import DumpMap, fused, module_of, plain_module
from pytest_probe.model.case import DIRECTIONS
from pytest_probe.model.dump import Direction, Dump, Record, TensorSpec, leaves
from pytest_probe.model.pairing import SideName

# Edits of a shortest edit script, beyond which sequences have too little in common for one.
_MOST_EDITS = 500
# Micro-batches that are looked for.
_MOST_PARTS = 64


class Match(Struct, frozen=True):
    """Records that are one call: one of each side; several of a side that made it in parts, along the batch; or one
    side alone. repeats is an earlier record of the same side with equal inputs, which this one computes again, as
    activation checkpointing does. directions are the ones that match; note says how they were found, "" by their
    names."""

    a: tuple[Record, ...] = ()
    b: tuple[Record, ...] = ()
    note: str = ""
    repeats: Record | None = None
    directions: tuple[Direction, ...] = DIRECTIONS

    def of(self, side: SideName) -> tuple[Record, ...]:
        return self.a if side == "A" else self.b


class _Keyed(Struct, frozen=True):
    """A record as it is compared: its name, what its call is (API, shapes, module), the same for any size of the first
    dimension, and its inputs as far as the dump describes them. sizes are those of the first dimension."""

    record: Record
    name: str
    call: Hashable
    any_batch: Hashable
    inputs: Hashable
    sizes: tuple[int, ...]


def match(a: Dump, b: Dump, given: DumpMap) -> list[Match]:
    """All records of both dumps, without the ones that the map leaves out."""
    found, taken = [], set[int]()
    for rule, parts, whole in fused(a, b, given):
        one, other = (parts, (whole,)) if rule.of_a else ((whole,), parts)
        note = f"{' + '.join(rule.parts)} of {'A' if rule.of_a else 'B'} joined by the map"
        found.append(Match(one, other, note))
        taken |= {id(whole), *map(id, parts)}
    # Each framework has its own names of APIs and of their namespaces.
    canonical = a.framework != b.framework
    first = {given.renamed(name): record for name, record in _named(a, given, taken, canonical=canonical)}
    second = dict(_named(b, given, taken, canonical=canonical))
    # Names decide where both sides made as many calls of each API that both have. What a map joined has left gaps in
    # the numbers.
    counts = [Counter(name.rpartition(".")[0] for name in names) for names in (first, second)]
    if not taken and all(counts[0][api] == counts[1][api] for api in counts[0].keys() & counts[1].keys()):
        found += [Match((record,), (second[name],) if name in second else ()) for name, record in first.items()]
        return found + [Match((), (record,)) for name, record in second.items() if name not in first]
    # Both in their order.
    ours = [_keyed(name, record, a, given.renamed) for name, record in first.items()]
    theirs = [_keyed(name, record, b, str) for name, record in second.items()]
    for side, divided, undivided in (("A", ours, theirs), ("B", theirs, ours)):
        places = _in_parts(divided, undivided)
        if places is not None:
            note = f"{places[2]} micro-batches of {side}, joined along the first dimension"
            for several, one in _by_parts(divided, undivided, *places):
                pair = (several, one) if side == "A" else (one, several)
                found.append(Match(*pair, note if len(several) > 1 else ""))
            return found
    return found + _one_by_one(ours, theirs)


def _named(dump: Dump, given: DumpMap, taken: Set[int], *, canonical: bool) -> Iterator[tuple[str, Record]]:
    """Names and records of a dump that are still to be matched; canonical: by the canonical names of APIs, numbered in
    the order of calls."""
    numbers = Counter[str]()
    for record in (*dump.records, *dump.compare_only):
        name = plain_module(record.name) if record.namespace in ("Module", "Cell") else record.name
        ignored = given.ignored and given.ignores(name, record.name, module_of(record, dump))
        if id(record) in taken or ignored:
            continue
        if canonical:
            api = frameworks.signatures(dump.framework).canonical(name.rpartition(".")[0])
            name = f"{api}.{numbers[api]}"
            numbers[api] += 1
        yield name, record


def _keyed(name: str, record: Record, dump: Dump, renamed: Callable[[str], str]) -> _Keyed:
    call = dump.readable(record)
    api = name.rpartition(".")[0]
    specs = [] if call is None else list(leaves((call.args, call.kwargs)))
    if call is not None and not specs:
        specs = [(path, value) for path, value in call.returned()]
    module = renamed(module_of(record, dump))
    shapes = [value.shape for _, value in specs if isinstance(value, TensorSpec)]
    inputs: list[Hashable] = []
    for path, value in specs:
        if isinstance(value, TensorSpec):
            numbers = repr((value.max, value.min, value.mean, value.norm))
            inputs.append((path, value.dtype, value.shape, value.checksum, numbers))
        else:
            inputs.append((path, repr(value)))
    return _Keyed(
        record,
        name,
        (api, tuple(shapes), module),
        (api, tuple(shape[1:] for shape in shapes), module),
        (api, tuple(inputs)),
        tuple(shape[0] for shape in shapes if shape),
    )


def _one_by_one(a: Sequence[_Keyed], b: Sequence[_Keyed]) -> list[Match]:
    """The pairs in the order of A, then what B has alone. A call that computes an earlier one again has the gradients
    of that one."""
    pairs = dict(_pairs(a, b))
    matched = set(pairs.values())
    rest = {item.name: place for place, item in enumerate(b) if place not in matched}
    for place, item in enumerate(a):
        if place not in pairs and item.name in rest and b[rest[item.name]].call == item.call:
            pairs[place] = rest.pop(item.name)
    found: list[Match] = []
    earlier: dict[Hashable, int] = {}
    for place, item in enumerate(a):
        if place in pairs:
            other = b[pairs[place]]
            earlier.setdefault(item.inputs, len(found))
            note = "" if item.name == other.name else f"matched by the order of calls with {other.record.name}"
            found.append(Match((item.record,), (other.record,), note))
        elif item.inputs in earlier:
            found += _repeated(found, earlier[item.inputs], item.record, of_a=True)
        else:
            found.append(Match((item.record,)))
    inputs = {id(item.record): item.inputs for item in b}
    of_b = {inputs[id(each.b[0])]: place for place, each in enumerate(found) if each.b}
    matched = set(pairs.values())
    for place, item in enumerate(b):
        if place in matched:
            continue
        if item.inputs in of_b:
            found += _repeated(found, of_b[item.inputs], item.record, of_a=False)
        else:
            found.append(Match((), (item.record,)))
    return found


def _repeated(found: list[Match], place: int, record: Record, *, of_a: bool) -> list[Match]:
    """What a record is that computes another one of its side again, in the match at that place."""
    pair = found[place]
    first, partner = (pair.a[0], pair.b[0]) if of_a else (pair.b[0], pair.a[0])
    again = Match((record,) if of_a else (), () if of_a else (record,), repeats=first, directions=("forward",))
    if record.backward is None:
        return [again]
    if first.backward is not None or partner.backward is None:
        return [again, Match(again.a, again.b, directions=("backward",))]
    found[place] = replace(pair, directions=("forward",))
    both = ((record,), (partner,)) if of_a else ((partner,), (record,))
    return [again, Match(*both, note=f"{record.name} computes {first.name} again", directions=("backward",))]


def _pairs(a: Sequence[_Keyed], b: Sequence[_Keyed]) -> list[tuple[int, int]]:
    """Places of equal calls on both sides, in order: first those with equal inputs, then in the gaps between them those
    of one API, shapes and module."""
    found = []
    start_a = start_b = 0
    # Calls whose inputs occur once on each side, in the longest order that both have in common.
    counts = [Counter(item.inputs for item in side) for side in (a, b)]
    places = {item.inputs: place for place, item in enumerate(b) if counts[1][item.inputs] == 1}
    unique = [
        (place, places[item.inputs])
        for place, item in enumerate(a)
        if counts[0][item.inputs] == 1 and item.inputs in places
    ]
    for end_a, end_b in (*increasing(unique), (len(a), len(b))):
        one, other = [item.call for item in a[start_a:end_a]], [item.call for item in b[start_b:end_b]]
        found += [(start_a + first, start_b + second) for first, second in shortest_edits(one, other)]
        found += [(end_a, end_b)] if end_a < len(a) else []
        start_a, start_b = end_a + 1, end_b + 1
    return found


def increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of pairs, which rise in the first number, that rises in the second as well (by patience sorting,
    n log n)."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, second) in enumerate(pairs):
        pile = bisect_left(tops, second)
        before.append(ends[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(second)
            ends.append(index)
        else:
            tops[pile], ends[pile] = second, index
    found = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(pairs[index])
        index = before[index]
    return found[::-1]


def shortest_edits(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The places of equal items in a shortest edit script of two sequences, in order; those at both ends alone where
    the script has more than 500 edits."""
    shorter = min(len(a), len(b))
    head = next((place for place in range(shorter) if a[place] != b[place]), shorter)
    tail = next((back for back in range(shorter - head) if a[-1 - back] != b[-1 - back]), shorter - head)
    middle = _middle(a[head : len(a) - tail], b[head : len(b) - tail])
    found = [(place, place) for place in range(head)]
    found += [(head + first, head + second) for first, second in middle]
    return found + [(len(a) - back, len(b) - back) for back in range(tail, 0, -1)]


def _middle(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The same, without equal items at both ends."""
    if not a or not b:
        return []
    farthest = {1: 0}
    history = []
    for edits in range(min(len(a) + len(b), _MOST_EDITS) + 1):
        history.append(dict(farthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = _goes_down(farthest, edits, diagonal)
            x = farthest[diagonal + 1] if down else farthest[diagonal - 1] + 1
            while x < len(a) and x - diagonal < len(b) and a[x] == b[x - diagonal]:
                x += 1
            farthest[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return _traced(history, len(a), len(b))
    return []


def _goes_down(farthest: Mapping[int, int], edits: int, diagonal: int) -> bool:
    """Is the last edit before a diagonal an item of b alone?"""
    return diagonal == -edits or (diagonal != edits and farthest[diagonal - 1] < farthest[diagonal + 1])


def _traced(history: Sequence[Mapping[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The equal items on the way back from the end; history has the farthest places before each edit."""
    found = []
    for edits in range(len(history) - 1, -1, -1):
        farthest, diagonal = history[edits], x - y
        before = diagonal + 1 if _goes_down(farthest, edits, diagonal) else diagonal - 1
        start = farthest[before]
        while x > start and y > start - before:
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = start, start - before
    return found[::-1]


def _in_parts(many: Sequence[_Keyed], whole: Sequence[_Keyed]) -> tuple[int, int, int] | None:
    """Did one side make calls of the other in micro-batches, and all others alike? It made so many calls, from the
    first-th on, in so many parts, one after the other: first, calls, parts."""
    surplus = len(many) - len(whole)
    for count in range(2, min(_MOST_PARTS, surplus + 1) + 1):
        calls, rest = divmod(surplus, count - 1)
        first = None if rest else _repeated_from([item.any_batch for item in many], calls, surplus)
        if first is None:
            continue
        joined = [*many[: first + calls], *many[first + calls * count :]]
        alike = all(one.any_batch == other.any_batch for one, other in zip(joined, whole, strict=True))
        ends = range(first, first + calls * count, calls)
        if alike and _divided([many[start : start + calls] for start in ends], whole[first : first + calls]):
            return first, calls, count
    return None


def _repeated_from(calls: Sequence[Hashable], distance: int, length: int) -> int | None:
    """The first place from which on so many items are equal to those at a distance behind."""
    run = 0
    for place in range(len(calls) - distance):
        run = run + 1 if calls[place] == calls[place + distance] else 0
        if run == length:
            return place + 1 - length
    return None


def _divided(parts: Sequence[Sequence[_Keyed]], whole: Sequence[_Keyed]) -> bool:
    """Do the first dimensions of the parts' tensors add up to those of the whole, or are all of one size, and do some
    add up?"""
    divided = False
    for *pieces, one in zip(*parts, whole, strict=True):
        for *small, large in zip(*(piece.sizes for piece in pieces), one.sizes, strict=True):
            if sum(small) == large:
                divided = True
            elif any(size != large for size in small):
                return False
    return divided


def _by_parts(
    many: Sequence[_Keyed], whole: Sequence[_Keyed], first: int, calls: int, count: int
) -> Iterator[tuple[tuple[Record, ...], tuple[Record, ...]]]:
    """What the side that made calls in parts has of each call of the other side, and that call."""
    for place, item in enumerate(whole):
        places = [place + (len(many) - len(whole) if place >= first + calls else 0)]
        if first <= place < first + calls:
            places = [place + number * calls for number in range(count)]
        yield tuple(many[each].record for each in places), (item.record,)
