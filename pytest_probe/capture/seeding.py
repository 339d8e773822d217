"""One seed for everything that draws, so that two runs of a program can be compared."""

from __future__ import annotations

import os
import random

import numpy as np

from pytest_probe import frameworks
from pytest_probe.capture.framework import recording

# msprobe's.
SEED = 1234


def seed_all(seed: int = SEED, mode: bool = False, framework: str = frameworks.DEFAULT) -> None:
    """Seed Python's, NumPy's and the framework's generators; mode: it shall use deterministic algorithms, and warn
    where there is none. Raises Unsupported where the framework is not installed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed)
    # cuBLAS reads this when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    recording(framework).seed(seed, mode)
