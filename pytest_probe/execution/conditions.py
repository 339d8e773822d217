"""What a run was asked for, and the framework that it asks."""

from __future__ import annotations

import gc
import importlib.util
import sys
from dataclasses import dataclass

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import Framework
from pytest_probe.records.rawjson import paused_gc

FLOPS = 2e10


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run was asked for: device None is the framework's own choice, workers share the machine's cores,
    repeat is how often the device runs each case, allow names device modes, or says "auto" for what the framework's
    flags allow, or "none". reference_device is where float64 runs, flops how many a product or a convolution may take
    there in one run before it is sampled. measured: verdicts carry the measures that msprobe's files hold."""

    device: str | None = None
    seed: int = 0
    inputs: str = "auto"
    standard: str = "auto"
    workers: int = 1
    allow: tuple[str, ...] = ("auto",)
    repeat: int = 1
    reference_device: str = "cpu"
    flops: float = FLOPS
    measured: bool = False


def load_framework(name: str) -> Framework:
    """The framework that a dump names. Raises Unsupported where it cannot be run here."""
    if name != "pytorch":
        raise Unsupported(f"a dump of {name}; this version replays pytorch", "another framework")
    if importlib.util.find_spec("torch") is None:
        raise Unsupported("torch is not installed: pip install 'pytest-probe[torch]'", "framework not installed")
    first = "torch" not in sys.modules
    with paused_gc():
        from pytest_probe.frameworks.torch import TorchFramework
    if first:
        # What the import made stays as long as the process: no collection needs to walk over all of it again.
        gc.freeze()
    return TorchFramework()
