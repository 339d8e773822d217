"""What a process may have told Python and NumPy to raise, which ends no check."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def nothing_raised() -> Iterator[None]:
    """NumPy's errors as by default; a warning that would be raised is shown."""
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        if not _raise_warnings():
            yield
            return
        with warnings.catch_warnings():
            shown = [("default" if action == "error" else action, *rest) for action, *rest in warnings.filters]
            warnings.resetwarnings()
            warnings.filters[:] = shown  # type: ignore[index]
            yield


def _raise_warnings() -> bool:
    return "error" in [filter[0] for filter in warnings.filters]
