from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.errors import SettingsError
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.devices import Emulated
from tests.execution.conftest import Bench, Make, Plant, normal
from tests.writing import entries, write_dump


def test_a_device_that_was_given_as_a_string_is_the_one_under_test(bench: Make) -> None:
    """As recorded on another machine."""

    def elsewhere(data: dict[str, Any]) -> None:
        data["Tensor.to.0.forward"]["input_args"][1]["value"] = "cuda:0"

    assert bench("Tensor.to", torch.Tensor.to, normal(5), "cpu", edit=elsewhere).check().verdict == "pass"


def seeds(made: Bench, path: Path) -> dict[str, Any]:
    made.checker.save(path)
    saved = torch.load(path, weights_only=True)
    return {name.removeprefix("seed."): value for name, value in saved.items() if name.startswith("seed.")}


def test_every_output_has_an_incoming_gradient(bench: Make, tmp_path: Path) -> None:
    made = bench("Torch.split", torch.split, normal(6), 2, backward=True)
    assert made.check("backward").verdict == "pass"
    assert sorted(seeds(made, tmp_path / "x.pt")) == ["output.0", "output.1", "output.2"]


def test_an_output_that_got_no_gradient_has_none(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.split.0.backward"]["input"][1] = None

    made = bench("Torch.split", torch.split, normal(6), 2, backward=True, edit=edit)
    assert made.check("backward").verdict == "pass"
    assert sorted(seeds(made, tmp_path / "x.pt")) == ["output.0", "output.2"]


def test_all_have_one_where_none_was_recorded(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.split.0.backward"]["input"] = [None, None, None]

    made = bench("Torch.split", torch.split, normal(6), 2, backward=True, edit=edit)
    assert made.check("backward").verdict == "pass"
    assert len(seeds(made, tmp_path / "x.pt")) == 3


def test_indices_have_no_gradient(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.max.0.backward"]["input"][1] = None

    made = bench("Torch.max", torch.max, normal(5, 5), 1, backward=True, edit=edit)
    assert made.check("backward").verdict == "pass"
    assert list(seeds(made, tmp_path / "x.pt")) == ["output.0"]


def test_both_directions_share_one_forward_run(bench: Make, plant: Plant) -> None:
    runs: list[Any] = []
    made = bench("Torch.neg", torch.neg, normal(5), backward=True)
    plant(torch, "neg", lambda right, x: (runs.append(0), right(x))[1])
    assert [made.check("forward").verdict, made.check("backward").verdict] == ["pass", "pass"]
    assert len(runs) == 1
    assert [made.check("backward").verdict, made.check("backward").verdict] == ["pass", "pass"]
    assert len(runs) == 3
    assert made.check("forward", dtype="float16").verdict == "pass"
    assert len(runs) == 4


def test_release_frees_the_run(bench: Make, plant: Plant) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    made = bench("Torch.exp", torch.exp, normal(5), backward=True)
    plant(torch, "exp", lambda right, x: (alive.append(weakref.ref(x)), right(x))[1])
    gc.collect()
    gc.disable()
    try:
        made.check("forward")
        assert alive[0]() is not None
        made.check("backward")
        made.checker.release()
        assert [item() for item in alive] == [None] * len(alive)
    finally:
        gc.enable()


def test_another_record_frees_the_last(bench: Make, plant: Plant, tmp_path: Path) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    made = bench("Torch.exp", torch.exp, normal(5))
    more = entries("Torch.exp.0", torch.exp, normal(5)) | entries("Torch.neg.0", torch.neg, normal(5))
    made.dump = read_dump(write_dump(tmp_path, more))
    plant(torch, "exp", lambda right, x: (alive.append(weakref.ref(x)), right(x))[1])
    made.check()
    made.check(record=1)
    assert [item() for item in alive] == [None] * len(alive)


def test_calls_and_references_of_the_registry(bench: Make) -> None:
    registry = Registry.default()
    registry.calls["NPU.twice"] = lambda x: x + x
    registry.references["NPU.twice"] = lambda x: 2 * x
    assert bench("NPU.twice", lambda x: x + x, normal(5), registry=registry).check().verdict == "pass"
    registry.calls["NPU.twice"] = lambda x: 2.001 * x if x.dtype is torch.float32 else x + x
    assert bench("NPU.twice", lambda x: x + x, normal(5), registry=registry).check().verdict == "error"
    assert bench("NPU.thrice", lambda x: x + x, normal(5), registry=registry).check().kind == "outside the allow-list"


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
    assert made.checker.runner.describe()["device"] == "emulated:3"


def test_a_device_that_is_not_there(bench: Make) -> None:
    with pytest.raises(SettingsError, match="--probe-device: 'nonsense' cannot be used"):
        bench("Torch.exp", torch.exp, normal(5), conditions={"device": "nonsense"}).check()


def test_the_seed_decides_the_inputs(bench: Make, tmp_path: Path) -> None:
    values = []
    for seed in (0, 0, 1):
        made = bench("Torch.exp", torch.exp, normal(5), conditions={"seed": seed})
        made.check()
        made.checker.save(tmp_path / "x.pt")
        values.append(torch.load(tmp_path / "x.pt", weights_only=True)["input.0"])
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])
