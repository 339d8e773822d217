from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.check.engines import Engines, RunRequest, nothing_raised
from pytest_probe.errors import SettingsError
from pytest_probe.model.verdict import Diagnosis
from pytest_probe.registry import Registry
from tests.check.conftest import Make, normal
from tests.support.devices import Emulated


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(lambda tensor: tensor, "pass"), (lambda tensor: tensor * 1.001, "error")],
    ids=["right", "wrong"],
)
def test_devices_of_the_registry(bench: Make, change: Any, verdict: str) -> None:
    registry = Registry.default()
    registry.devices["emulated"] = lambda name: Emulated(name, change)
    options: Any = {"registry": registry, "request": {"device": "emulated:3"}}
    made = bench("Torch.tanh", torch.tanh, normal(50), backward=True, **options)
    assert [made.check("forward").verdict, made.check("backward").verdict] == [verdict, verdict]
    assert made.checker.engines.describe()["device"] == "emulated:3"


def test_a_device_that_is_not_there(bench: Make) -> None:
    with pytest.raises(SettingsError, match="--probe-device: 'nonsense' cannot be used"):
        bench("Torch.exp", torch.exp, normal(5), request={"device": "nonsense"}).check()


def error(*, quick: bool = False, by_runs: bool = False) -> Diagnosis:
    return Diagnosis(1, 1, {}, "", "everywhere", "", "", quick, by_runs)


def test_runs_that_find_no_cause_end_after_fewer_errors() -> None:
    engines = Engines(RunRequest(whole_diagnoses=10), Registry.default())
    depths = []
    for _ in range(4):
        depths.append(engines.depth("Torch.exp"))
        engines.diagnosed("Torch.exp", error(quick=depths[-1] == "quick"))
    assert depths == ["whole", "whole", "quick", "quick"]
    found = []
    for _ in range(12):
        found.append(engines.depth("Torch.sin"))
        engines.diagnosed("Torch.sin", error(quick=found[-1] == "quick", by_runs=True))
    assert found == ["whole"] * 10 + ["quick"] * 2


def test_every_cause_is_looked_for_without_a_limit() -> None:
    engines = Engines(RunRequest(), Registry.default())
    for _ in range(100):
        assert engines.depth("Torch.exp") == "whole"
        engines.diagnosed("Torch.exp", error())
    assert Engines(RunRequest(diagnosed=False), Registry.default()).depth("Torch.exp") == "none"


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
        with nothing_raised(nullcontext()):
            assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
            warnings.warn("shown", stacklevel=1)
        assert [str(warning.message) for warning in shown] == ["shown"]
        with pytest.raises(UserWarning, match="raised"):
            warnings.warn("raised", stacklevel=1)


@pytest.mark.parametrize("further", [nullcontext(), failing(False), failing(True)])
def test_error_settings_and_warning_filters_are_restored(further: AbstractContextManager[None]) -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with suppress(OSError), nothing_raised(further):
            pass
        assert set(np.geterr().values()) == {"raise"}
        assert list(warnings.filters) == before
