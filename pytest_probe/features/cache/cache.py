"""The cache of a run: a folder, and what its numbers depend on besides the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pytest_probe import frameworks
from pytest_probe.check.conditions import Setup
from pytest_probe.features.cache.folder import Folder
from pytest_probe.features.cache.keys import build_of, digest, digest_of_array, package_digest
from pytest_probe.features.cache.results import CachedResults, Digests
from pytest_probe.frameworks.environment import environment
from pytest_probe.model.case import Case

# Bytes of a cache: what some hundred calls of a millisecond on an accelerator keep.
SIZE = 10_000_000_000


class Cache:
    """Keeps numbers of the reference side in a folder of `size` bytes at most."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self._folder = Folder(folder, size)
        self._digests = Digests()
        # Libraries read it when they begin; frameworks add to it for their own children while they run.
        self._variables = environment()

    def results(self, setup: Setup, case: Case) -> CachedResults | None:
        """See check.kept.ReferenceCache."""
        kernels = setup.framework.registered_kernels(setup.reference.place)
        if kernels is None:
            return None
        begins = digest((*self._environment(setup), kernels, case.direction), digest_of_array)
        package = frameworks.MODULES[setup.name]
        return CachedResults(self._folder, self._digests, begins, setup.framework.random_state, package)

    def _environment(self, setup: Setup) -> tuple[Any, ...]:
        """What numbers of the reference depend on beside the call: float64's last digits differ between processors, and
        with the number of threads. It is asked anew for each case, since a hook of the user's may set threads."""
        framework = setup.framework.describe()
        told = [framework.get(name, "") for name in ("framework", "version", "threads")]
        places = [setup.framework.hardware(place) for place in ("cpu", setup.reference.place)]
        build = build_of(frameworks.MODULES[setup.name])
        return package_digest(), np.__version__, ml_dtypes.__version__, told, places, self._variables, build
