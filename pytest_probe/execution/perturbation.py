"""Perturbed runs of a replay's reference: what its outputs do when inputs move by a roundoff."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Jitter, Kernel, Run, Steps, Way
from pytest_probe.frameworks.modes import Mode
from pytest_probe.numerics import noise
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_complex, is_floating, widen
from pytest_probe.standards.question import Kind

Draw: TypeAlias = Callable[[AnyArray], AnyArray]

REDRAWS = 3
# Roundoffs that inputs move by, where it is not one.
SIZES: Mapping[Kind, float] = {"nudged": 4.0, "shrunk": 1 / 16}
SAMPLES = 8
COMPLEX: Mapping[str, type] = {"float32": np.complex64, "float64": np.complex128}


def ways(
    narrow: str, reference: Way, wide: frozenset[str] = frozenset(), kernels: tuple[Kernel, ...] = ()
) -> Mapping[Kind, Way]:
    """How each kind of perturbed run is made, for outputs of dtype `narrow`; wide names arguments that are wider.
    Kernels of float32 and those split into steps are the CPU's: another device's may be what is tested."""
    rounded = Steps(narrow, fine=False, wide=wide, kernels=kernels)
    return {
        "float64": reference,
        "nudged": reference,
        "shrunk": reference,
        "narrowed": reference,
        "float32": Way(dtype="float32"),
        "fine": Way(dtype="float64", steps=Steps("float32", fine=True)),
        "coarse": Way(dtype="float64", steps=rounded),
        "rounded": Way(dtype="float64", steps=rounded),
        "narrow": Way(dtype="float64", steps=Steps(narrow, fine=True)),
    }


@dataclass(frozen=True, slots=True)
class OutputRuns:
    """The perturbed runs of one output, but for those of another shape (unique values of perturbed inputs)."""

    perturbation: Perturbation
    name: str
    shape: tuple[int, ...]

    def __call__(self, kind: Kind, count: int) -> list[AnyArray]:
        return [run for run in self.perturbation.output(self.name, kind, count) if run.shape == self.shape]


class Perturbation:
    """Perturbed runs of one case, each made once and kept for all its outputs.

    roundoff is u_c; narrow the dtype for `coarse` and `narrow` runs; gradient tells whether the case is the backward.
    together: equal values move alike, so that a choice among them stays, and inward, since the arguments' ranges may
    differ. fixed names arguments that hold labels, which stay as they are: moved, they would be none. redrawn counts
    runs that raised and were drawn again, whole tells that a kernel inside the call has no float64. Under a mode that
    rounds operands the arguments stay as they are, since that rounding would swallow a roundoff: what moves is
    operands after it, and results of kernels.
    """

    def __init__(
        self,
        replay: Replay,
        key: str,
        roundoff: float,
        narrow: str,
        gradient: bool,
        mode: Mode | None = None,
        together: bool = False,
        fixed: frozenset[str] = frozenset(),
    ) -> None:
        self.replay = replay
        self.key = key
        self.roundoff = roundoff
        self.narrow = narrow
        self.gradient = gradient
        self.mode = mode
        self.together = together
        self.fixed = fixed
        self.inside = mode is not None and bool(mode.bits)
        self.redrawn = 0
        self.whole = False
        self._made: dict[Kind, list[dict[str, AnyArray]]] = {}
        self._read: list[dict[str, AnyArray]] | None = None
        self._rounding: dict[str, bool] = {}

    def output(self, name: str, kind: Kind, count: int) -> list[AnyArray]:
        """One output in `count` runs; fewer where the reference cannot be perturbed that often."""
        if kind in ("float32", "fine", "shrunk") and self.roundoff < 2.0**-24:
            return []
        if self.inside and kind != "float64":
            return []
        if self._own(kind) is not None and not self._is_rounding(name):
            self._made.pop("coarse", None)
            self.whole = True
        runs = self._runs(kind, count)
        also = self._other_readings() if kind == "coarse" else []
        return [widen(run[name]) for run in (*runs[:count], *also) if name in run]

    def _runs(self, kind: Kind, count: int) -> list[dict[str, AnyArray]]:
        runs = self._made.setdefault(kind, [])
        while len(runs) < count:
            made = self._run(kind, len(runs))
            if made is None:
                break
            runs.append(made)
        return runs

    def _is_rounding(self, name: str) -> bool:
        """Is what runs in the call's own dtypes are off by another thing each time? What is always the same is no
        rounding but a fault of the call, which must not excuse itself."""
        if name not in self._rounding:
            pairs = zip(self._runs("rounded", SAMPLES), self._runs("narrowed", SAMPLES), strict=False)
            found = [widen(own[name]) - widen(exact[name]) for own, exact in pairs if name in own and name in exact]
            self._rounding[name] = len(found) < SAMPLES or noise.scatters(np.stack(found))
        return self._rounding[name]

    def _other_readings(self) -> list[dict[str, AnyArray]]:
        """Where a kernel rounds a Python float its gradient's need not, nor the rest of a vectorised loop."""
        if self._read is None:
            _, *others = self.replay.readings()
            runs = (self._run("coarse", 0, reading) for reading in others)
            self._read = [run for run in runs if run is not None]
        return self._read

    def _run(self, kind: Kind, index: int, reading: Replay | None = None) -> dict[str, AnyArray] | None:
        # Ties between 16-bit numbers are common and go to even in every kernel; a roundoff sends each one anywhere.
        exact = kind == "coarse" and index == 0
        replay = reading or self.replay
        for attempt in range(REDRAWS):
            generator = _generator(self.key, "narrowed" if kind == "rounded" else kind, index)
            shrink = 0.0 if exact else 0.25**attempt
            try:
                return self._results(replay, kind, generator, inward=attempt > 0, shrink=shrink)
            except Exception as error:
                self.whole |= isinstance(error, NotImplementedError)
                # Beyond the domain (a probability above 1, a matrix no longer positive definite): towards it, nearer.
                self.redrawn += 1
        return None

    def _wide(self) -> frozenset[str]:
        """The floating arguments that the device's kernels see in a wider dtype than the narrow one."""
        if self.replay.narrow:
            return frozenset()  # autocast rounds them
        least = float_format(self.narrow).precision
        floats = {name: leaf.array.dtype for name, leaf in self.replay.leaves.items() if is_floating(leaf.array.dtype)}
        return frozenset(name for name, dtype in floats.items() if float_format(dtype).precision > least)

    def _own(self, kind: Kind) -> Way | None:
        """How 16-bit steps are run where an autocast casts for calls inside this one: in the call's own dtypes."""
        replay = self.replay
        if self.whole or kind not in ("coarse", "rounded") or not replay.narrow:
            return None
        if replay.framework.casts(replay.candidate.path):
            return None
        steps = Steps(self.narrow, fine=False, own=True)
        return Way(replay.framework.device("cpu"), autocast=replay.autocast, steps=steps)

    @functools.cached_property
    def _kernels(self) -> tuple[Kernel, ...]:
        """Those of a call on 16-bit tensors, where some compute in float32: rms_norm casts what it takes. Only that
        they do counts, not what they give, since a fault must not excuse itself."""
        if float_format(self.narrow).precision >= 24 or self.replay.narrow or self._wide():
            return ()
        try:
            found = self.replay.framework.kernels(self._witness)
        except Exception:  # no kernel of that dtype, or one without a gradient
            return ()
        return found if any(single for _, single in found) else ()

    def _witness(self) -> None:
        replay = self.replay
        run = replay.witness_run(replay.framework.device("cpu"), replay.wanted if self.gradient else None)
        if self.gradient:
            replay.framework.gradients(run, replay.seeds)

    def _size(self, kind: Kind) -> float:
        if kind in ("narrowed", "rounded"):
            return float_format(self.narrow).roundoff
        return self.roundoff * SIZES.get(kind, 1.0)

    def _results(
        self, replay: Replay, kind: Kind, generator: np.random.Generator, inward: bool, shrink: float
    ) -> dict[str, AnyArray]:
        size = self._size(kind) * shrink
        kernels = self._kernels if kind in ("coarse", "rounded") else ()
        known = ways(self.narrow, replay.reference, self._wide(), kernels)
        way = self._own(kind) or replace(known[kind], mode=self.mode)
        if self.inside:
            way, size = replace(way, jitter=Jitter(size, int(generator.integers(2**62)))), 0.0
        elif self.mode is not None and self.mode.flush:
            way = replace(way, jitter=Jitter(0.0, int(generator.integers(2**62))))
        elif way.steps is not None and way.steps.fine:
            way = replace(way, steps=replace(way.steps, seed=int(generator.integers(2**62))))
        draw = _apart(generator)
        move = functools.partial(by_value, salt=int(generator.integers(2**62))) if self.together else draw
        inwards = inward or self.together
        moved: dict[tuple[int, bool], AnyArray] = {}  # a tensor that was passed twice moves as one
        for name, leaf in replay.leaves.items():
            key = id(leaf.array), name in self.fixed
            if key not in moved:
                moved[key] = perturbed(leaf.array, move, size * (name not in self.fixed), inwards, way.dtype)
        leaves = {
            name: replace(leaf, array=moved[id(leaf.array), name in self.fixed]) for name, leaf in replay.leaves.items()
        }
        if not self.gradient:
            run = replay.reference_run(leaves, way, None)
            return results(run, replay.changed)
        seeds = {name: perturbed(seed, draw, size, inward, way.dtype) for name, seed in replay.seeds.items()}
        run = replay.reference_run(leaves, way, replay.wanted)
        return replay.framework.gradients(run, seeds)


def results(run: Run, changed: frozenset[str]) -> dict[str, AnyArray]:
    """Arrays among the return values, and the arguments that the call changes, by name."""
    found = {name: np.asarray(value) for name, value in run.outputs.items() if isinstance(value, (np.ndarray, float))}
    found.update({name: run.after(name) for name in changed})
    return found


def perturbed(array: AnyArray, draw: Draw, size: float, inward: bool, dtype: str) -> AnyArray:
    """Every float times (1 + size xi), xi uniform with unit variance, kept inside the array's own range; as dtype, or
    where that is "" as it was.

    draw gives a number between 0 and 1 for each value of an array. Real and imaginary parts apart. inward: towards
    zero only. Integers and booleans stay.
    """
    if is_complex(array.dtype):
        wide = widen(array)
        parts = [_moved(part, draw, size, inward) for part in (wide.real, wide.imag)]
        return (parts[0] + 1j * parts[1]).astype(COMPLEX.get(dtype, array.dtype))
    if not is_floating(array.dtype):
        return array
    return _moved(widen(array), draw, size, inward).astype(dtype or array.dtype)


def _apart(generator: np.random.Generator) -> Draw:
    return lambda values: generator.random(values.shape)


def by_value(values: AnyArray, salt: int) -> AnyArray:
    """A number between 0 and 1 for each value, the same for the same value: splitmix64 of its bits and a salt."""
    bits = np.asarray(values + 0.0, order="C").view(np.uint64) ^ np.uint64(salt)
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)


def _moved(values: AnyArray, draw: Draw, size: float, inward: bool) -> AnyArray:
    if not values.size:
        return values
    xi = 3.0**0.5 * (2 * draw(values) - 1)
    low, high = np.min(values), np.max(values)
    if inward or low == high:
        # A constant has no range of its own to stay in: towards zero, where few functions have an edge.
        return np.asarray(values * (1.0 - size * np.abs(xi)))
    moved = np.asarray(values * (1.0 + size * xi))
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = values[np.isfinite(values)]
        if not finite.size:
            return moved
        low, high = finite.min(), finite.max()
        return np.where(np.isfinite(values), np.clip(moved, low, high), values)
    return np.clip(moved, low, high, out=moved)


def _generator(key: str, kind: str, index: int) -> np.random.Generator:
    digest = hashlib.blake2b(f"{key}\0{kind}\0{index}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
