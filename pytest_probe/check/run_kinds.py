"""The kinds of further runs of a reference: what moves the inputs of each, and what it rounds inside. And arguments
that move by a roundoff: large ones block by block, on all cores, without a copy in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.inputs.draws import Uniforms, by_turns
from pytest_probe.model.comparison import COMPOSED, RunKind
from pytest_probe.model.device_modes import Mode
from pytest_probe.model.run import Composition, Kernel, Steps, Way
from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import AnyArray, float_format, widen
from pytest_probe.numerics.float32_sums import ORDERS


class KindOfRun(Struct, frozen=True):
    """What moves the inputs of a kind of runs, and what such a run rounds.

    inputs is the name that they are drawn by: kinds of one name run on the very same inputs, so that the difference of
    both is what they round. Other names would give other numbers. Inputs move by `size` roundoffs of the arithmetic
    inside, 0: they are exact; by_narrow: of the case's 16-bit dtype; on_numbers: they stay numbers of their own dtypes.

    rounds is "", nothing, as the reference; "float32", as `way` says, by the CPU's float32 kernels or the framework's
    decompositions, step by step; "between kernels", to the 16-bit dtype; "inside", each step of decompositions to that;
    "own dtypes", each kernel of the call as an accelerator has it, which `elsewhere` says; "borders", where the user
    named them; "operands", those of products.
    """

    inputs: str
    size: float = 1.0
    rounds: Literal["", "float32", "between kernels", "inside", "own dtypes", "borders", "operands"] = ""
    by_narrow: bool = False
    on_numbers: bool = False
    way: Way | None = None
    elsewhere: Composition | None = None


SINGLE, STEPS = Way(dtype="float32"), Way(dtype="float64", steps=Steps("float32", fine=True))
BY_CHANCE = Way(dtype="float64", steps=Steps("float32", fine=True, by_chance=True))
KINDS: Mapping[RunKind, KindOfRun] = {
    "perturbed": KindOfRun("float64"),
    "perturbed_more": KindOfRun("nudged", 4.0),
    "perturbed_less": KindOfRun("shrunk", 1 / 16),
    "moved_slightly": KindOfRun("slight", 2.0**-20),
    "perturbed_narrow": KindOfRun("narrowed", by_narrow=True),
    "neighbours": KindOfRun("neighbours", by_narrow=True, on_numbers=True),
    "float32": KindOfRun("float32", 1.0, "float32", way=SINGLE),
    "single": KindOfRun("single", 0.0, "float32", way=SINGLE),
    "float32_steps": KindOfRun("fine", 1.0, "float32", way=STEPS),
    "rounded_by_chance": KindOfRun("chance", 0.0, "float32", way=BY_CHANCE),
    **{
        order: KindOfRun(
            order, 0.0, "float32", way=Way(dtype="float64", steps=Steps("float32", fine=True, order=order))
        )
        for order in ORDERS
    },
    # The first of these runs is on exact inputs.
    "narrow_steps": KindOfRun("coarse", 1.0, "between kernels"),
    "narrow_steps_perturbed": KindOfRun("narrowed", 1.0, "between kernels", by_narrow=True),
    "narrow_steps_inside": KindOfRun("narrow", 1.0, "inside"),
    "overflowing_steps": KindOfRun("overflowing", 0.0, "inside"),
    **{exact: KindOfRun(how, 0.0, "own dtypes", elsewhere=how) for how, (exact, _) in COMPOSED.items()},
    **{
        further: KindOfRun("neighbours", 1.0, "own dtypes", by_narrow=True, elsewhere=how)
        for how, (_, further) in COMPOSED.items()
    },
    "bordered": KindOfRun("bordered", 0.0, "borders"),
    "bordered_moved": KindOfRun("neighbours", 1.0, "borders", by_narrow=True, on_numbers=True),
    "rounded_operands": KindOfRun("operands", 0.0, "operands"),
    "rounded_operands_moved": KindOfRun("neighbours", 1.0, "operands", by_narrow=True, on_numbers=True),
    "carried_operands": KindOfRun("carried", 0.0, "operands"),
    "carried_operands_moved": KindOfRun("neighbours", 1.0, "operands", by_narrow=True, on_numbers=True),
}


def way_of(
    kind: RunKind, narrow: str, reference: Way, wide: frozenset[str] = frozenset(), kernels: tuple[Kernel, ...] = ()
) -> Way:
    """How a kind of perturbed run is made, for outputs of dtype `narrow`; wide names arguments that are wider."""
    rounds, way = KINDS[kind].rounds, KINDS[kind].way
    if way is not None:
        return way
    if not rounds:
        return reference
    if rounds == "borders":
        return replace(reference, border=narrow)
    if rounds == "operands":
        carried = kind in ("carried_operands", "carried_operands_moved")
        return replace(reference, mode=Mode(bits=float_format(narrow).precision, carried=carried))
    fine = rounds == "inside"
    overflows = kind == "overflowing_steps"
    steps = (
        Steps(narrow, fine=True, overflows=overflows) if fine else Steps(narrow, fine=False, wide=wide, kernels=kernels)
    )
    return Way(dtype="float64", steps=steps)


# Gives the numbers between 0 and 1 of a block, from the place at which it begins.
OfBlock: TypeAlias = Callable[[int, AnyArray], AnyArray]


class Independent:
    """A number between 0 and 1 for each element, the next ones of a generator."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def __call__(self, values: AnyArray) -> AnyArray:
        return np.asarray(self._generator.random(values.shape))

    def begun(self, size: int) -> Uniforms:
        """Those of so many elements."""
        return Uniforms(self._generator, size)


class SameForEqualValues:
    """A number between 0 and 1 for each value, the same for the same value: splitmix64 of its bits and a salt."""

    def __init__(self, salt: int) -> None:
        self._salt = np.uint64(salt)

    def __call__(self, values: AnyArray) -> AnyArray:
        # Plus zero, since -0 and 0 are equal and have other bits.
        bits = np.asarray(values + 0.0, order="C").view(np.uint64) ^ self._salt
        with np.errstate(over="ignore"):
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)


class Range(NamedTuple):
    """The least and the largest value, NaN where one is NaN, and those of the finite values; inf and -inf without
    one."""

    low: float = np.inf
    high: float = -np.inf
    least: float = np.inf
    most: float = -np.inf

    @classmethod
    def of(cls, values: AnyArray) -> Range:
        if not values.size:
            return cls()
        low, high = float(values.min()), float(values.max())
        if np.isfinite(low) and np.isfinite(high):
            return cls(low, high, low, high)
        finite = values[np.isfinite(values)]
        return cls(low, high, float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))


def by_blocks(
    array: AnyArray, draw: Independent | SameForEqualValues, size: float, inward: bool, dtype: np.dtype
) -> AnyArray:
    """A real floating array of which each value has moved, in a dtype. Threads draw at the same time."""
    flat, found = array.reshape(-1), np.empty(array.shape, dtype)
    out, ends = found.reshape(-1), _ends_of(flat)
    whole = Range.of(widen(flat)) if ends is None else Range(*ends, *ends)
    if isinstance(draw, SameForEqualValues):
        _move(flat, out, lambda start, values: draw(values), size, inward, whole)
        return found
    uniforms = draw.begun(flat.size)
    if ends is not None and kernel.moves(flat, out):
        constant = inward or whole.low == whole.high

        def by_kernel(start: int, stop: int) -> None:
            kernel.move(uniforms.words, start, flat[start:stop], out[start:stop], size, ends, inward=constant)

        by_turns(flat.size, by_kernel)
        return found

    def numbers(start: int, values: AnyArray) -> AnyArray:
        drawn = np.empty(values.size)
        uniforms.fill(start, drawn)
        return drawn

    _move(flat, out, numbers, size, inward, whole)
    return found


def _move(flat: AnyArray, out: AnyArray, numbers: OfBlock, size: float, inward: bool, whole: Range) -> None:
    def move(start: int, stop: int) -> None:
        for first in range(start, stop, BLOCK):
            values = widen(flat[first : min(first + BLOCK, stop)])
            out[first : first + values.size] = moved(values, numbers(first, values), size, inward, whole)

    by_turns(flat.size, move)


def _ends_of(flat: AnyArray) -> tuple[float, float] | None:
    """The least and the greatest value; None where one is not finite, and where it is zero and zeros of both signs are
    there: NumPy takes either for an end, by their places in the whole, and for a value that lies there."""
    ends = by_turns(flat.size, lambda start, stop: _ends(flat[start:stop]))
    known = [each for each in ends if each is not None]
    if len(known) < len(ends):
        return None
    low, high, positive, negative = zip(*known, strict=True)
    if 0.0 in (min(low), max(high)) and any(positive) and any(negative):
        return None
    return min(low), max(high)


def _ends(values: AnyArray) -> tuple[float, float, int, int] | None:
    """Those of a part, and whether positive and negative zeros are there."""
    if kernel.compiled is not None:
        return kernel.ends(values)
    wide = widen(values)
    negative = np.signbit(wide[wide == 0])
    if not np.isfinite(wide).all():
        return None
    return float(wide.min()), float(wide.max()), int(not negative.all()), int(negative.any())


def moved(values: AnyArray, xi: AnyArray, size: float, inward: bool, whole: Range) -> AnyArray:
    """Float64 values of an array of a range, each times (1 + size xi): xi has unit variance, and is made of as many
    numbers between 0 and 1, whose place may be taken. inward: towards zero only."""
    # Uniform from -1 to 1 has a variance of 1/3.
    xi *= 2
    xi -= 1
    xi *= 3.0**0.5
    if inward or whole.low == whole.high:
        # A constant has no range of its own to stay in: towards zero, where few functions have an edge.
        return np.asarray(values * (1.0 - size * np.abs(xi)))
    xi *= size
    xi += 1
    xi *= values
    # inf and NaN have no neighbours to move to; the range is that of the finite numbers.
    if np.isfinite(whole.low) and np.isfinite(whole.high):
        return np.clip(xi, whole.low, whole.high, out=xi)
    if whole.least > whole.most:
        return xi
    return np.where(np.isfinite(values), np.clip(xi, whole.least, whole.most), values)
