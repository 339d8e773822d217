"""The kinds of further runs of a reference: what moves the inputs of each, and what it rounds inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import COMPOSED, RunKind
from pytest_probe.model.device_modes import Mode
from pytest_probe.model.run import Composition, Kernel, Steps, Way
from pytest_probe.numerics.dtypes import float_format
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
    "untied": KindOfRun("untied"),
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
    **{exact: KindOfRun(how, 0.0, "own dtypes", elsewhere=how) for how, (exact, _) in COMPOSED.items()},
    **{
        moved: KindOfRun("neighbours", 1.0, "own dtypes", by_narrow=True, elsewhere=how)
        for how, (_, moved) in COMPOSED.items()
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
    steps = Steps(narrow, fine=True) if fine else Steps(narrow, fine=False, wide=wide, kernels=kernels)
    return Way(dtype="float64", steps=steps)
