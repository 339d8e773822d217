"""What a process may have told Python and NumPy to raise, which ends no check."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager

import numpy as np


class NothingRaised:
    """NumPy's errors as by default; a warning that would be raised is shown; and what further holds in here."""

    def __init__(self, further: AbstractContextManager[None]) -> None:
        self._further = further

    def __enter__(self) -> None:
        self._numpy = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
        self._numpy.__enter__()
        self._warnings = warnings.catch_warnings() if _raise_warnings() else None
        if self._warnings is not None:
            self._warnings.__enter__()
            shown = [("default" if action == "error" else action, *rest) for action, *rest in warnings.filters]
            warnings.resetwarnings()
            warnings.filters[:] = shown  # type: ignore[index]
        try:
            self._further.__enter__()
        except BaseException:
            self._put_back()
            raise

    def __exit__(self, *raised: object) -> None:
        try:
            self._further.__exit__(None, None, None)
        finally:
            self._put_back()

    def _put_back(self) -> None:
        if self._warnings is not None:
            self._warnings.__exit__(None, None, None)
        self._numpy.__exit__(None, None, None)


def _raise_warnings() -> bool:
    return "error" in [filter[0] for filter in warnings.filters]
