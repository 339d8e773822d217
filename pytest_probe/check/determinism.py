"""One case run several times on the device: how far the runs lie apart, and the worst verdict on each output."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.verdict import NON_DETERMINISTIC, SEVERITY, Metric, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_inexact, ulp_distance, widen


class RunSpread(Struct):
    """How far apart the runs of one output are.

    low and high are the extremes of each element (real and imaginary parts apart), disagree tells that they differ on
    NaN, or on the shape.
    """

    dtype: np.dtype[Any]
    low: AnyArray
    high: AnyArray
    disagree: bool = False

    @classmethod
    def of(cls, array: AnyArray) -> RunSpread:
        parts = _parts(array)
        return cls(array.dtype, parts, parts)

    def add(self, array: AnyArray) -> None:
        parts = _parts(array)
        if parts.shape != self.low.shape or bool((np.isnan(parts) != np.isnan(self.low)).any()):
            self.disagree = True
            return
        # Extremes are enough for the largest distance, and no run need be kept.
        self.low, self.high = np.fmin(self.low, parts), np.fmax(self.high, parts)

    @property
    def elements(self) -> int:
        """Elements that differ between runs."""
        differ = (self.low != self.high) & ~np.isnan(self.low)
        return int(np.count_nonzero(differ.any(axis=-1) if is_complex(self.dtype) else differ))

    @property
    def ulp(self) -> float:
        """The largest distance between two runs of one element, in units of the dtype; inf where they disagree."""
        if self.disagree:
            return math.inf
        if is_inexact(self.dtype):
            real = np.dtype(self.dtype.type(0).real.dtype)
            return float(ulp_distance(self.high, self.low, real).max(initial=0.0))
        return float((self.high - self.low).max(initial=0.0))


class Repeats:
    """The runs of one case, added one by one; only one of each kind is held."""

    def __init__(self) -> None:
        self._count = 0
        self._unlike = 0
        self._first = b""
        self._seen: set[bytes] = set()
        self._spreads: dict[str, RunSpread] = {}
        self._worst: dict[str, OutputVerdict] = {}

    def add(self, actual: Mapping[str, Any]) -> bool:
        """Count a run. Is it unlike all before, bit for bit, and so to be judged?"""
        # Runs may be many and large: a digest tells equal ones, and none of them is kept.
        state = hashlib.blake2b(digest_size=16)
        for name in sorted(actual):
            value = actual[name]
            is_array = isinstance(value, np.ndarray)
            state.update(f"{name}\0{value.shape if is_array else repr(value)}\0".encode())
            if is_array:
                state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        digest = state.digest()
        self._first = self._first or digest
        self._count += 1
        self._unlike += digest != self._first
        if digest in self._seen:
            return False
        self._seen.add(digest)
        for name, value in actual.items():
            if isinstance(value, (np.ndarray, bool, int, float)):
                array = np.asarray(value)
                if name in self._spreads:
                    self._spreads[name].add(array)
                else:
                    self._spreads[name] = RunSpread.of(array)
        return True

    def judged(self, outputs: Iterable[OutputVerdict]) -> bool:
        """Take the verdicts on a run. Is one of them the worst so far?"""
        found = False
        for output in outputs:
            before = self._worst.get(output.name)
            if before is None or _badness(output) > _badness(before):
                self._worst[output.name] = output
                found = True
        return found

    def outputs(self) -> tuple[OutputVerdict, ...]:
        """The worst verdict on each output, with how often it ran and how far its runs lie apart."""
        found = []
        for output in self._worst.values():
            metrics: dict[str, Metric] = {**output.metrics, "repeats": self._count}
            if (spread := self._spreads.get(output.name)) is not None:
                metrics["spread_ulp"] = spread.ulp
            found.append(replace(output, metrics=metrics))
        return tuple(found)

    def notes(self) -> tuple[str, ...]:
        if not self._unlike:
            return ()
        parts = [
            f"{name}: {spread.elements:,} of {spread.low.size:,} elements, by up to {spread.ulp:,.4g} ULP"
            for name, spread in self._spreads.items()
            if spread.elements or spread.disagree
        ]
        runs = f"{self._unlike} of {self._count} runs differ from the first"
        return (f"{NON_DETERMINISTIC}: {'; '.join([runs, *parts])}",)


def _badness(output: OutputVerdict) -> tuple[int, float]:
    ratio = float(output.metrics.get("noise_ratio", 0.0)) / float(output.metrics.get("noise_ratio_limit", 1.0))
    return SEVERITY[output.verdict], math.inf if math.isnan(ratio) else ratio


def _parts(array: AnyArray) -> AnyArray:
    """As float64; a complex element as its two parts, in a last dimension of their own."""
    wide = widen(array).astype(np.complex128 if is_complex(array.dtype) else np.float64, copy=False)
    return np.stack([wide.real, wide.imag], axis=-1) if is_complex(array.dtype) else wide
