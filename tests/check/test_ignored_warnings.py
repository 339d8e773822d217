"""What a check runs in is put back, whatever else fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import numpy as np
import pytest

from pytest_probe.check.ignored_warnings import NothingRaised


@contextmanager
def failing(entered: bool) -> Iterator[None]:
    """A context that fails when it is entered, or left."""
    if not entered:
        raise OSError
    yield
    raise OSError


def test_numpy_and_warnings_raise_nothing_inside() -> None:
    with np.errstate(all="raise"), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("error")
        with NothingRaised(nullcontext()):
            assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
            warnings.warn("shown", stacklevel=1)
        assert [str(warning.message) for warning in shown] == ["shown"]
        with pytest.raises(UserWarning, match="raised"):
            warnings.warn("raised", stacklevel=1)


@pytest.mark.parametrize("further", [nullcontext(), failing(False), failing(True)])
def test_what_was_set_comes_back(further: AbstractContextManager[None]) -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with suppress(OSError), NothingRaised(further):
            pass
        assert set(np.geterr().values()) == {"raise"}
        assert list(warnings.filters) == before
