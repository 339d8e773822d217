"""Check a dump in this process, and print as JSON to whom its CPU time goes.

    python benchmarks/shares.py DUMP

Everything is imported before the clock starts. The public functions named in `wrappers` are replaced by ones that
charge `time.process_time` to their part; of nested parts the inner one is charged, and what none of them claims is
pytest's.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

# What torch imports late: at the first gradient, and for steps between kernels.
IMPORTS = ("torch", "torch._decomp", "torch._refs", "torch.fx.experimental.symbolic_shapes", "pytest")
OPTIONS = ("-p", "pytest_probe.plugin", "-p", "no:cacheprovider")

DEVICE = "API calls on the device"
REFERENCE = "the reference"
PERTURBED = "perturbed references"
INPUTS = "inputs"
JUDGING = "metrics and judging"
CHECK = "decoding, look-up, structure"
PYTEST = "pytest and the rest"
PARTS = (DEVICE, REFERENCE, PERTURBED, INPUTS, JUDGING, CHECK, PYTEST)


class Accounts:
    """Seconds of CPU by part; the innermost part that is entered pays."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = [PYTEST]
        self._last = time.process_time()

    def switch(self) -> None:
        """Charge the time since the last switch to the part that is open."""
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._last
        self._last = now

    def charged(self, part: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, charged to the part that `part` names for its arguments; within a perturbed run that pays."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self._open.append(PERTURBED if self._open[-1] == PERTURBED else part(*args, **kwargs))
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self._open.pop()

        return wrapper


def wrappers() -> list[tuple[Any, str, Callable[..., str]]]:
    """Whose function of what name is charged to which part."""
    from pytest_probe import Checker, inputs, standards
    from pytest_probe.check.perturbed import PerturbedRuns
    from pytest_probe.frameworks.torch.framework import TorchFramework

    on_device: dict[int, bool] = {}

    def side(framework: Any, function: Any, args: Any, kwargs: Any, way: Any, wanted: Any = None) -> str:
        return REFERENCE if way.device is None else DEVICE

    def side_of_run(framework: Any, run: Any, seeds: Any) -> str:
        return DEVICE if on_device[id(run)] else REFERENCE

    run = TorchFramework.run

    @functools.wraps(run)
    def remembering(framework: Any, function: Any, arguments: Any, way: Any, wanted: Any = None) -> Any:
        made = run(framework, function, arguments, way, wanted)
        on_device[id(made)] = way.device is not None
        return made

    patched: Any = TorchFramework
    patched.run = remembering
    return [
        (TorchFramework, "run", side),
        (TorchFramework, "gradients", side_of_run),
        (PerturbedRuns, "output", lambda *_: PERTURBED),
        (inputs, "build", lambda *_, **__: INPUTS),
        (Checker, "run", lambda *_: CHECK),
        *((type(standard), "judge", lambda *_: JUDGING) for standard in standards.STANDARDS.values()),
    ]


def measure(dump: str) -> dict[str, float]:
    """Seconds of CPU by part for the whole check of a dump. Raises RuntimeError where pytest does not pass."""
    for name in IMPORTS:
        __import__(name)
    gc.freeze()  # as the check does where it imports the framework itself
    pairs = wrappers()
    accounts = Accounts()
    for owner, name, part in pairs:
        setattr(owner, name, accounts.charged(part, getattr(owner, name)))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main([*OPTIONS, f"--probe-dump={dump}"])
    accounts.switch()
    if status:
        raise RuntimeError(said.getvalue())
    return dict(accounts.seconds)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
