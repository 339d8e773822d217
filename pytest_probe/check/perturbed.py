"""Perturbed runs of a replay's reference: what its outputs do when inputs move by a roundoff."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.borders_agree import check_gradients_of_borders
from pytest_probe.check.both_sides import NO_CALL, BothSides, Reference
from pytest_probe.check.reference_cache import CachedResult
from pytest_probe.check.run_kinds import KINDS, Independent, Range, SameForEqualValues, by_blocks, moved, way_of
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.comparison import Evidence, RunKind
from pytest_probe.model.device_modes import Mode
from pytest_probe.model.dump import Direction
from pytest_probe.model.measurement import spending
from pytest_probe.model.run import Jitter, Kernel, Leaf, Steps, Way
from pytest_probe.numerics import mean_errors
from pytest_probe.numerics.arrays import PASS
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_complex, is_floating, is_inexact, numpy_dtype, widen
from pytest_probe.user_errors import allowing_refusal

Draw: TypeAlias = Callable[[AnyArray], AnyArray]

# Attempts at a run that the call refuses, each a quarter as far from the recorded inputs: 1, 1/4, 1/16 of a roundoff.
REDRAWS = 3
# Draws that tell scatter from what is always the same: their mean has a third of the scatter of one.
SAMPLES = 8
# What moves inputs, drawn before a run begins: not the streams that inputs are drawn from.
_STREAMS = RandomStreams()
NUMPY_COMPLEX: Mapping[str, type] = {"float32": np.complex64, "float64": np.complex128}


class Perturbation(Struct, frozen=True):
    """How inputs and incoming gradients move.

    key seeds what is drawn; roundoff is u_c; narrow the 16-bit dtype of some kinds. together: equal values move alike,
    so that a choice among them stays, and inward, since the arguments' ranges may differ. fixed names arguments that
    hold labels, which stay as they are: moved, they would be none. attends: it is attention, whose products take 16-bit
    operands. written: the reference itself rounds to narrow, which is no argument's dtype. by_matrix: elements move by
    a roundoff of their matrix, and not of themselves.
    """

    key: str
    direction: Direction
    roundoff: float
    narrow: str = "float32"
    mode: Mode | None = None
    together: bool = False
    fixed: frozenset[str] = frozenset()
    attends: bool = False
    written: bool = False
    by_matrix: bool = False


class PerturbedRuns:
    """Perturbed runs of one case's reference, each made once and kept for all its outputs. readings are the reference
    and its other reading."""

    def __init__(self, replay: BothSides, perturbation: Perturbation) -> None:
        self._readings = [reading.reference for reading in replay.readings()]
        self._incoming, self._device = replay.incoming, replay.source.name
        self._how = perturbation
        # A kernel inside the call has no float64, or is off by the same each time: steps are those of the call as one.
        self._whole = False
        self._made: dict[RunKind, list[dict[str, AnyArray]]] = {}
        self._read: list[dict[str, AnyArray]] | None = None
        self._rounding: dict[str, bool] = {}

    @property
    def _reference(self) -> Reference:
        return self._readings[0]

    def output(self, name: str, kind: RunKind, count: int) -> list[AnyArray]:
        """One output in `count` runs; fewer where the reference cannot be perturbed that often."""
        # With float64 outputs a float32 run shows nothing of the kernel's own rounding.
        less = kind in ("perturbed_less", "moved_slightly")
        if (less or KINDS[kind].rounds == "float32") and self._how.roundoff < 2.0**-24:
            return []
        # Where less than float64 is the reference, such inputs have not moved.
        if less and self._reference.way.dtype != "float64":
            return []
        if KINDS[kind].rounds == "borders" and not self._has_borders:
            return []
        # What a framework's own call rounds inside is known, or is its kernel's alone: recorded, or named by its API.
        found = self._reference.candidate
        named = self._reference.call is not NO_CALL or (bool(found.api) and not found.inferred)
        if KINDS[kind].rounds == "operands" and named and not found.composed:
            return []
        # What is off by the same in each run is a fault, which must not excuse itself: the steps of the call as one
        # count then.
        own = KINDS[kind].rounds == "between kernels" and not self._how.written and self._own(kind) is not None
        if own and not self._is_rounding(name):
            self._made.pop("narrow_steps", None)
            self._whole = True
        runs = self._runs(kind, count)[:count]
        if kind == "narrow_steps":
            # Where a kernel rounds a Python float its gradient's need not, nor the rest of a vectorised loop.
            if self._read is None:
                others = (self._run("narrow_steps", 0, reading) for reading in self._readings[1:])
                self._read = [run for run in others if run is not None]
            runs += self._read
        return [run[name] for run in runs if name in run]

    def steps_of(self, part: BothSides) -> Mapping[str, AnyArray]:
        """What the known 16-bit steps give of a part of the call, on exact inputs; empty where they refuse."""
        reference, way = part.reference, self._way("narrow_steps", self._reference)
        with allowing_refusal():
            if self._how.direction == "forward":
                return reference.results_of(reference.leaves, way)
            return reference.gradients_of(reference.leaves, way, part.incoming)
        return {}

    @functools.cached_property
    def _has_borders(self) -> bool:
        """Are there borders? Raises NoReference where their gradients in float64 are others than the reference's."""
        bordered = self._reference.with_borders()
        if bordered is not None and self._how.direction == "backward":
            check_gradients_of_borders(bordered, self._reference, self._incoming)
        return bordered is not None

    def _runs(self, kind: RunKind, count: int) -> list[dict[str, AnyArray]]:
        runs = self._made.setdefault(kind, [])
        while len(runs) < count:
            made = self._run(kind, len(runs), self._reference)
            if made is None:
                break
            runs.append(made)
        return runs

    def _is_rounding(self, name: str) -> bool:
        """Is what runs in the call's own dtypes are off by another thing each time? What is always the same is no
        rounding but a fault of the call, which must not excuse itself."""
        if name not in self._rounding:
            rounded, exact = self._runs("narrow_steps_perturbed", SAMPLES), self._runs("perturbed_narrow", SAMPLES)
            pairs = zip(rounded, exact, strict=False)
            found = [widen(one[name]) - widen(other[name]) for one, other in pairs if name in one and name in other]
            self._rounding[name] = len(found) < SAMPLES or mean_errors.scatters(np.stack(found))
        return self._rounding[name]

    def _run(self, kind: RunKind, index: int, reference: Reference) -> dict[str, AnyArray] | None:
        """A run, as an earlier one of pytest kept it or made now; None where the call refuses all tries."""
        if KINDS[kind].rounds == "borders":
            reference = reference.with_borders() or reference
        device = self._device if KINDS[kind].rounds == "own dtypes" else ""
        found, self._whole = reference.kept(
            lambda: ("perturbed", kind, index, self._how, self._whole, self._incoming, device, reference.state),
            lambda: (self._made_run(kind, index, reference), self._whole),
            lambda made: None if made[0] is None else CachedResult(made[0], made[1]),
            lambda kept: (dict(kept.values), kept.other),
        )
        return found

    @spending("runs")
    def _made_run(self, kind: RunKind, index: int, reference: Reference) -> dict[str, AnyArray] | None:
        # Ties between 16-bit numbers are common and go to even in every kernel; a roundoff sends each one anywhere.
        exact = not KINDS[kind].size or (kind == "narrow_steps" and index == 0)
        # Every second slight run is the first with the other sign, so that each edge is crossed in one of both.
        pairs = 2 if kind == "moved_slightly" else 1
        for attempt in range(REDRAWS):
            generator = _STREAMS.at(f"{self._how.key}\0{KINDS[kind].inputs}\0{index // pairs}")
            shrink = 0.0 if exact else 0.25**attempt * (-1) ** (index % pairs)
            try:
                return self._results(reference, kind, index, generator, inward=attempt > 0, shrink=shrink)
            except MemoryError:
                raise
            except Exception as error:
                # Beyond the domain (a probability above 1, a matrix no longer positive definite): towards it, nearer.
                self._whole |= isinstance(error, NotImplementedError) and KINDS[kind].rounds != "operands"
        return None

    def _wide(self) -> frozenset[str]:
        """The floating arguments that the device's kernels see in a wider dtype than the narrow one."""
        if self._reference.narrow:
            return frozenset()  # autocast rounds them
        least = float_format(self._how.narrow).precision
        leaves = self._reference.leaves
        floats = {name: leaf.array.dtype for name, leaf in leaves.items() if is_floating(leaf.array.dtype)}
        return frozenset(name for name, dtype in floats.items() if float_format(dtype).precision > least)

    def _own(self, kind: RunKind) -> Way | None:
        """How steps are run in the call's own dtypes; None where float64 is rounded. An accelerator's are always, the
        CPU's where an autocast casts for calls inside this one, the reference does, or several dtypes meet."""
        reference = self._reference
        if KINDS[kind].rounds == "own dtypes":
            how, atomic = self._how, self._device != "cpu"
            if KINDS[kind].elsewhere == "cast":
                steps = Steps(how.narrow, False, own=True, elsewhere="composed", atomic=atomic)
                return Way(reference.composing(self._device), steps=steps)
            elsewhere = KINDS[kind].elsewhere
            steps = Steps(how.narrow, False, own=True, elsewhere=elsewhere, atomic=atomic, products=how.attends)
            return Way(reference.framework.host(), autocast=reference.autocast, steps=steps)
        if self._whole or KINDS[kind].rounds != "between kernels":
            return None
        by_autocast = reference.narrow and not reference.framework.casts(reference.candidate.path)
        # Do arguments of the narrow dtype stand next to wider ones? What each step rounds to, the call tells.
        narrow = any(leaf.array.dtype.name == self._how.narrow for leaf in reference.leaves.values())
        if not by_autocast and not self._how.written and not (narrow and self._wide()):
            return None
        steps = Steps(self._how.narrow, fine=False, own=True)
        return Way(reference.framework.host(), autocast=reference.autocast, steps=steps)

    @functools.cached_property
    def _kernels(self) -> tuple[Kernel, ...]:
        """Those of a call on 16-bit tensors, of which some may compute in float32: rms_norm casts what it takes. Only
        that they do counts, not what they give, since a fault must not excuse itself."""
        if float_format(self._how.narrow).precision >= 24 or self._reference.narrow or self._wide():
            return ()
        reference = self._reference
        found: tuple[Kernel, ...] = ()
        with allowing_refusal():  # no kernel of that dtype, or one without a gradient
            found = reference.kept(
                lambda: ("kernels", self._how.direction, self._incoming, reference.state),
                lambda: reference.framework.kernels(self._run_on_cpu),
                lambda made: CachedResult({}, made),
                lambda kept: tuple((name, single, narrow) for name, single, narrow in kept.other),
            )
        return found

    def _run_on_cpu(self) -> None:
        reference, framework = self._reference, self._reference.framework
        if self._how.direction == "forward":
            replace(reference, wanted=None).in_own_dtypes(framework.host())
        else:
            framework.gradients(reference.in_own_dtypes(framework.host()), self._incoming)

    def _results(
        self,
        reference: Reference,
        kind: RunKind,
        index: int,
        generator: np.random.Generator,
        inward: bool,
        shrink: float,
    ) -> dict[str, AnyArray]:
        how = self._how
        by_narrow = KINDS[kind].by_narrow
        size = shrink * (float_format(how.narrow).roundoff if by_narrow else how.roundoff * KINDS[kind].size)
        way = self._way(kind, reference)
        # One way of moving at a time: by what flushing may lose, or by a library's ulp.
        if how.mode is not None and how.mode.flush:
            way = replace(way, jitter=Jitter(0.0, int(generator.integers(2**62))))
        elif way.steps is not None and way.steps.elsewhere:
            way = replace(way, steps=replace(way.steps, seed=index))
        elif way.steps is not None and way.steps.fine:
            way = replace(way, steps=replace(way.steps, seed=int(generator.integers(2**62))))
        elif way.steps is not None and kind == "narrow_steps" and shrink and not how.together:
            way = replace(way, steps=replace(way.steps, seed=int(generator.integers(2**62)), computed=True))
        draw = Independent(generator)
        alike = how.together or kind == "moved_slightly"
        move = SameForEqualValues(int(generator.integers(2**62))) if alike else draw
        dtype = "" if KINDS[kind].on_numbers else way.dtype
        leaves = self._moved_leaves(reference, move, size, inward or how.together, dtype)
        if how.direction == "forward":
            return reference.results_of(leaves, way)
        incoming = {name: self._moved(array, draw, size, inward, dtype) for name, array in self._incoming.items()}
        return reference.gradients_of(leaves, way, incoming)

    def _way(self, kind: RunKind, reference: Reference) -> Way:
        """How a run of a kind is made, under the mode that is assumed."""
        own = self._own(kind)
        if own is not None:
            return own
        rounds = KINDS[kind].rounds == "between kernels"
        wide, kernels = (self._wide(), self._kernels) if rounds else (frozenset[str](), ())
        way = way_of(kind, self._how.narrow, reference.way, wide, kernels)
        return way if self._how.mode is None or way.mode is self._how.mode else replace(way, mode=self._how.mode)

    def _moved_leaves(
        self,
        reference: Reference,
        move: Draw,
        size: float,
        inward: bool,
        dtype: str,
    ) -> dict[str, Leaf]:
        """The arguments moved; a tensor that was passed twice moves as one."""
        moved: dict[tuple[int, bool], AnyArray] = {}
        leaves: dict[str, Leaf] = {}
        for name, leaf in reference.leaves.items():
            # By identity: the builder gives one array to all places of a tensor.
            key = id(leaf.array), name in self._how.fixed
            if key not in moved:
                moved[key] = self._moved(leaf.array, move, 0.0 if key[1] else size, inward, dtype)
            leaves[name] = Leaf(moved[key], leaf.requires_grad, leaf.strides, leaf.offset)
        return leaves

    def _moved(self, array: AnyArray, draw: Draw, size: float, inward: bool, dtype: str) -> AnyArray:
        if self._how.by_matrix:
            return moved_by_matrix(array, draw, size, dtype)
        return perturbed(array, draw, size, inward, dtype)


class OutputRuns(Evidence, Struct, frozen=True):
    """The perturbed runs of one output, but for those of another shape (unique values of perturbed inputs), and of runs
    in the call's own dtypes those of another dtype."""

    source: PerturbedRuns
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        found = [run for run in self.source.output(self.name, kind, count) if run.shape == self.shape]
        if KINDS[kind].rounds == "own dtypes":  # one of another dtype than the device's says nothing of how that rounds
            found = [run for run in found if run.dtype == self.dtype]
        return [widen(run) for run in found]


def perturbed(array: AnyArray, draw: Draw, size: float, inward: bool, dtype: str) -> AnyArray:
    """Every float times (1 + size xi), xi uniform with unit variance, kept inside the array's own range; as dtype, or
    where that is "" as it was.

    draw gives a number between 0 and 1 for each value of an array. Real and imaginary parts apart. inward: towards
    zero only. Integers and booleans stay, and what a run in float64 widens itself.
    """
    if not size and dtype == "float64":
        return array
    if is_complex(array.dtype):
        wide = widen(array)
        parts = [_moved(part, draw, size, inward) for part in (wide.real, wide.imag)]
        return (parts[0] + 1j * parts[1]).astype(NUMPY_COMPLEX.get(dtype, array.dtype))
    if not is_floating(array.dtype):
        return array
    if array.size > PASS and isinstance(draw, (Independent, SameForEqualValues)):
        return by_blocks(array, draw, size, inward, numpy_dtype(dtype) if dtype else array.dtype)
    return _moved(widen(array), draw, size, inward).astype(dtype or array.dtype, copy=False)


def moved_by_matrix(array: AnyArray, draw: Draw, size: float, dtype: str) -> AnyArray:
    """Every float plus size xi times the RMS of its matrix, the last two dimensions: A + E, with |E| = size |A| in the
    Frobenius norm. Arguments and result as of `perturbed`."""
    if not is_inexact(array.dtype):
        return array
    wide = widen(array)
    rms = np.sqrt(np.mean(np.square(np.abs(wide)), axis=tuple(range(wide.ndim))[-2:], keepdims=True))
    parts = (wide.real, wide.imag) if is_complex(array.dtype) else (wide,)
    # Uniform from -1 to 1 has a variance of 1/3.
    off = sum(unit * 3.0**0.5 * (2 * draw(part) - 1) for unit, part in zip((1, 1j), parts, strict=False))
    found = wide + size * rms * off
    return np.asarray(found.astype(NUMPY_COMPLEX.get(dtype, array.dtype) if len(parts) > 1 else dtype or array.dtype))


def _moved(values: AnyArray, draw: Draw, size: float, inward: bool) -> AnyArray:
    return moved(values, draw(values), size, inward, Range.of(values)) if values.size else values
