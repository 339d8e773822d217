from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.check.conditions import Conditions, Setup
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
    options: Any = {"registry": registry, "conditions": {"device": "emulated:3"}}
    made = bench("Torch.tanh", torch.tanh, normal(50), backward=True, **options)
    assert [made.check("forward").verdict, made.check("backward").verdict] == [verdict, verdict]
    assert made.checker.setup.describe()["device"] == "emulated:3"


def test_a_device_that_is_not_there(bench: Make) -> None:
    with pytest.raises(SettingsError, match="--probe-device: 'nonsense' cannot be used"):
        bench("Torch.exp", torch.exp, normal(5), conditions={"device": "nonsense"}).check()


def test_the_seed_decides_the_inputs(bench: Make, tmp_path: Path) -> None:
    values = []
    for seed in (0, 0, 1):
        made = bench("Torch.exp", torch.exp, normal(5), conditions={"seed": seed})
        made.run().save(tmp_path / "x.pt")
        values.append(torch.load(tmp_path / "x.pt", weights_only=True)["input.0"])
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def error(*, quick: bool = False, by_runs: bool = False) -> Diagnosis:
    return Diagnosis(1, 1, {}, "", "everywhere", "", "", quick, by_runs)


def test_runs_that_find_no_cause_end_after_fewer_errors() -> None:
    setup = Setup(Conditions(whole_diagnoses=10), Registry.default())
    depths = []
    for _ in range(4):
        depths.append(setup.depth("Torch.exp"))
        setup.diagnosed("Torch.exp", error(quick=depths[-1] == "quick"))
    assert depths == ["whole", "whole", "quick", "quick"]
    found = []
    for _ in range(12):
        found.append(setup.depth("Torch.sin"))
        setup.diagnosed("Torch.sin", error(quick=found[-1] == "quick", by_runs=True))
    assert found == ["whole"] * 10 + ["quick"] * 2


def test_every_cause_is_looked_for_without_a_limit() -> None:
    setup = Setup(Conditions(), Registry.default())
    for _ in range(100):
        assert setup.depth("Torch.exp") == "whole"
        setup.diagnosed("Torch.exp", error())
    assert Setup(Conditions(diagnosed=False), Registry.default()).depth("Torch.exp") == "none"
