"""--probe-cache: numbers of the reference side outlast the run. Those of a case come from the cache's folder, or are
computed and added to it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import ml_dtypes
import numpy as np

from pytest_probe import frameworks
from pytest_probe.check.engines import Engines
from pytest_probe.check.reference_cache import CachedResult, Keep, Made
from pytest_probe.features.cache.folder import Entry, Folder, Part
from pytest_probe.features.cache.keys import Unkeyed, build_of, digest, digest_of_array, package_digest
from pytest_probe.features.cache.state import Entered, Witness, description, witness
from pytest_probe.model.case import Case
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.plugin.feature import Feature

# Seconds that the reference side of a case must take: less is computed as fast as it is read.
_MIN_SECONDS_TO_CACHE = 0.005
# Without the file a case is as right: a full disk, a value of a kind that has no place in it, no memory for a copy.
_UNWRITTEN = (OSError, TypeError, MemoryError)
# Bytes of a cache: what some hundred calls of a millisecond on an accelerator keep.
_SIZE = 10_000_000_000


class _Digests:
    """The digests of arrays, each computed once while the array is there."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[AnyArray], bytes]] = {}

    def of(self, array: AnyArray) -> bytes:
        place = id(array)
        known = self._known.get(place)
        if known is None or known[0]() is not array:

            def forget(gone: object) -> None:
                if place in self._known and self._known[place][0] is gone:
                    del self._known[place]

            known = self._known[place] = weakref.ref(array, forget), digest_of_array(array)
        return known[1]


class _CachedResults:
    """What is computed under one key is computed once, in this run and in later ones.

    The first key that is asked for names the file. drawn gives the state of random numbers: where a computation draws
    some, later ones depend on it, and nothing of the case is kept; nor where one enters a function that is not the
    framework's own. package is the framework's. What was kept counts while all functions that it has entered are what
    they were.
    """

    def __init__(
        self, folder: Folder, digests: _Digests, begins: bytes, drawn: Callable[[], bytes], package: str
    ) -> None:
        self.package = package
        self._folder = folder
        self._digests = digests
        self._begins = begins
        self._drawn = drawn
        self._name = ""
        self._entry: Entry | None = None
        self._pending: list[tuple[str, Callable[[], CachedResult | None]]] = []
        self._part: Part | None = None
        self._seconds = 0.0
        self._witnesses: dict[frozenset[CodeType], Witness] = {}
        self._within = False
        self._unkept = False

    def key(self, value: Any) -> bytes | None:
        """The digest of plain data and arrays; None where a value in it cannot be digested."""
        try:
            return digest(value, self._digests.of)
        except Unkeyed:
            return None

    def description(self, function: Callable[..., Any]) -> bytes | None:
        """What distinguishes a function from others of its name; None where it is not the framework's own."""
        try:
            return description(function, self.package) if frameworks.belongs_to(function, self.package) else None
        except Unkeyed:
            return None

    def of(
        self, key: bytes, what: Any, compute: Callable[[], Made], keep: Keep[Made], take: Callable[[CachedResult], Made]
    ) -> Made:
        """What the cache holds under key and what (all that further distinguishes the result), else what compute
        returns now. Raises what compute raises.

        keep turns what was computed into numbers, None for what is not worth it, take does the opposite.
        """
        label = self.key((key, what))
        if label is None:
            return compute()
        if not self._name:
            self._name = digest((self._begins, key), self._digests.of).hex()
            entry = self._folder.entry(self._name)
            holds = entry is not None and all(each.holds(self.package) for each in entry.witnesses)
            self._entry = entry if holds else None
        found = None if self._entry is None else self._entry.result(label.hex())
        return take(found) if found is not None else self._computed(label.hex(), compute, keep)

    def _computed(self, label: str, compute: Callable[[], Made], keep: Keep[Made]) -> Made:
        if self._within:  # what computes around it is watched
            return compute()
        before, begun = self._drawn(), time.perf_counter()
        self._within = True
        try:
            with Entered(self.package) as entered:
                made = compute()
        finally:
            self._within = False
        self._seconds += time.perf_counter() - begun
        if before != self._drawn() or entered.kept_back or entered.foreign:
            self._leave()
        if not self._unkept:
            codes = frozenset(entered.codes)
            try:
                if codes not in self._witnesses:
                    self._witnesses[codes] = witness(entered.codes, self.package)
            except Unkeyed:
                self._leave()
        if not self._unkept:
            self._pending.append((label, partial(keep, made)))
        try:
            # What a case computes is written at once, so that no run is held longer than its judge holds it.
            while self._pending and self._seconds >= _MIN_SECONDS_TO_CACHE:
                label, keep_it = self._pending.pop(0)
                kept = keep_it()
                if kept is not None:
                    self._part = self._part or Part.begun(self._folder.path)
                    self._part.add(label, kept)
        except _UNWRITTEN:
            self._leave()
        return made

    def _leave(self) -> None:
        """Keep nothing of this case."""
        self._unkept = True
        self._pending.clear()
        if self._part is not None:
            self._part.discard()
            self._part = None

    def close(self) -> None:
        """Keep what was computed, with what an earlier run has kept."""
        part, entry = self._part, self._entry
        if part is not None:
            try:
                earlier = () if entry is None else entry.witnesses
                part.witnesses = tuple(dict.fromkeys((*earlier, *self._witnesses.values())))
                for label in () if entry is None else entry.labels():
                    found = None if label in part.listed or entry is None else entry.result(label)
                    if found is not None:
                        part.add(label, found)
                if not all(each.holds(self.package) for each in self._witnesses.values()):
                    raise Unkeyed("a function was replaced while the case ran")
                self._folder.keep(part, self._name)
                self._part = None
            except _UNWRITTEN:
                self._leave()
        self._entry = None
        self._pending.clear()


class Cache:
    """Keeps numbers of the reference side in a folder of `size` bytes at most."""

    def __init__(self, folder: Path, size: int = _SIZE) -> None:
        self._folder = Folder(folder, size)
        self._digests = _Digests()
        # Libraries read it when they begin; frameworks add to it for their own children while they run.
        self._variables = frameworks.environment()

    def results(self, engines: Engines, case: Case) -> _CachedResults | None:
        """See check.reference_cache.ReferenceCache."""
        kernels = engines.framework.registered_kernels(engines.reference.place)
        if kernels is None:
            return None
        # What numbers of the reference depend on in addition to the call: float64's last digits differ between
        # processors, and with the number of threads. It is read again for each case, since a hook may set threads.
        framework = engines.framework.describe()
        framework_facts = [framework.get(name, "") for name in ("framework", "version", "threads")]
        places = [engines.framework.hardware(place) for place in ("cpu", engines.reference.place)]
        package = engines.framework.package
        libraries = package_digest(), np.__version__, ml_dtypes.__version__
        facts = *libraries, framework_facts, places, self._variables, build_of(package)
        begins = digest((*facts, kernels, case.direction), digest_of_array)
        return _CachedResults(self._folder, self._digests, begins, engines.framework.random_state, package)


class References(Feature):
    @property
    def request(self) -> Mapping[str, Cache]:
        assert self.probe.settings.cache is not None
        return {"cache": Cache(*self.probe.settings.cache)}
