"""Float64 of another device than the CPU: what is wrong with it is found, and what rounds otherwise is no fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.torch.device_arrays import TorchArray
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.model.device_arrays import Outputs
from pytest_probe.model.run import Run
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.check.conftest import normal
from tests.support.checking import verdicts
from tests.support.dumps import unpack
from tests.support.large_calls import cut_small_calls

Tensor = torch.Tensor
Wrong = Callable[[np.ndarray], np.ndarray]
RNG = np.random.default_rng(5)


def rounded(values: np.ndarray) -> np.ndarray:
    """Other roundings of float64, a few in each number."""
    return np.asarray(values * (1 + 2.0**-51 * RNG.integers(-4, 5, values.shape)) + 2.0**-54)


def rounded_alone(values: np.ndarray) -> np.ndarray:
    """The same, in proportion to each number."""
    return np.asarray(values * (1 + 2.0**-51 * RNG.integers(-4, 5, values.shape)))


def one_off(values: np.ndarray) -> np.ndarray:
    wrong = values.copy()
    wrong.reshape(-1)[wrong.size * 2 // 3] *= 1 + 1e-4
    return wrong


FAULTS: dict[str, Wrong] = {
    "a product off by 1e-6": lambda values: values * (1 + 1e-6),
    "float32 inside": lambda values: values.astype(np.float32).astype(np.float64),
    "one element": one_off,
}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The float64 of a device by another name, "cpu:0", gives what is changed of the CPU's."""

    def plant(forward: Wrong | None, backward: Wrong | None = None) -> None:
        run, gradients = TorchFramework.run, TorchFramework.gradients

        def changed(values: Mapping[str, Any], change: Wrong | None) -> Mapping[str, Any]:
            if change is None:
                return values
            floats = [name for name, value in values.items() if getattr(value, "dtype", None) == np.float64]
            wrong: dict[str, Any] = {name: change(values[name]) for name in floats}
            if isinstance(values, Outputs):
                there = {name: TorchArray(torch.from_numpy(array)) for name, array in wrong.items()}
                return Outputs({**values.lying, **there})
            return {**values, **wrong}

        def other_run(self: Any, function: Any, arguments: Any, way: Any, wanted: Any = None) -> Run:
            found: Run = run(self, function, arguments, way, wanted)
            if way.place == "cpu:0":
                found.outputs = changed(found.outputs, forward)
            return found

        def other_gradients(self: Any, found: Run, seeds: Any) -> Mapping[str, np.ndarray]:
            given = gradients(self, found, seeds)
            return changed(given, backward) if found.handle[1].way.place == "cpu:0" else given

        monkeypatch.setattr(TorchFramework, "run", other_run)
        monkeypatch.setattr(TorchFramework, "gradients", other_gradients)

    return plant


def check(function: Callable[..., Any], *given: Any, backward: bool = False, **further: Any) -> Verdict:
    """Of a device that is right."""
    checker = Checker(RunRequest(device="cpu", reference_device="cpu:0"), Registry.default())
    return checker.compare(function, function, list(given), key="call", backward=backward, **further)[-1]


CALLS: dict[str, Callable[[], Verdict]] = {
    "matmul": lambda: check(torch.matmul, normal(32, 48), normal(48, 16, seed=1)),
    "exp": lambda: check(torch.exp, normal(64, 64)),
    "cut": lambda: check(F.gelu, normal(512, 64)),
    "sampled": lambda: check(torch.matmul, normal(256, 256), normal(256, 256, seed=1)),
}


def growing() -> Verdict:
    return check(torch.exp, torch.linspace(-5, 25, 1000), api="Torch.exp")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ["matmul", "exp", "cut"])
def test_float64_that_is_wrong_is_found(
    call: str, fault: str, elsewhere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small_calls(monkeypatch)
    elsewhere(FAULTS[fault])
    found = CALLS[call]()
    assert (found.verdict, found.kind) == ("skip", "no reference")
    assert "float64 on cpu:0 gives other numbers than on the CPU: output.0" in found.reason


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("shape", [(32, 32), (512, 64)], ids=["small", "cut"])
def test_gradients_in_float64_that_are_wrong_are_found(
    shape: tuple[int, int], fault: str, elsewhere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small_calls(monkeypatch)
    elsewhere(None, FAULTS[fault])
    found = check(F.gelu, normal(*shape), backward=True)
    assert (found.verdict, found.kind) == ("skip", "no reference")


SMALL = normal(16, 64), normal(64, 8, seed=1) * 1e-14


@pytest.mark.parametrize(
    ("wrong", "call"),
    [
        # A small result is compared in its own size.
        *((lambda values, by=by: values * by, lambda: check(torch.matmul, *SMALL)) for by in (0.0, 0.5, 1.001, 2.0)),
        # Small elements next to large ones, of an API of which each element comes from one of the input.
        *((lambda values, by=by: np.where(values < by, values * 1.001, values), growing) for by in (0.1, 100.0)),
        (rounded_alone, growing),
    ],
)
def test_small_numbers_are_compared_in_their_own_size(
    wrong: Wrong, call: Callable[[], Verdict], elsewhere: Callable[..., None]
) -> None:
    elsewhere(wrong)
    found = call()
    assert (found.verdict, found.kind) == (("pass", "") if wrong is rounded_alone else ("skip", "no reference"))


def test_a_models_step_passes_with_its_reference_elsewhere(tmp_path: Path) -> None:
    found = verdicts(unpack("msprobe-26.2.0/gpt", tmp_path), reference_device="cpu:0")
    assert {name: each.reason for name, each in found.items() if each.verdict != "pass"} == {}


def test_sums_of_whole_numbers_that_cancel_are_no_fault(elsewhere: Callable[..., None]) -> None:
    """Whole numbers do not move, so that no run tells what rounding is worth."""

    def centred(x: Tensor) -> Tensor:
        return x - x.to(torch.float64).mean()

    elsewhere(rounded)
    assert check(centred, torch.arange(-500, 501)).verdict == "pass"


@pytest.mark.parametrize("call", ["matmul", "exp", "cut"])
def test_other_roundings_are_no_fault(
    call: str, elsewhere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small_calls(monkeypatch)
    elsewhere(rounded)
    found = CALLS[call]()
    assert found.verdict == "pass"
    assert "reference on cpu:0: what is judged, and 1% of the rest, ran on the CPU as well" in found.notes


def test_what_cancels_is_no_fault(elsewhere: Callable[..., None]) -> None:
    """Terms of 10^9 that add up to nothing: what is left is rounding, and differs by all of itself."""

    def summed(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)).sum(-1) + x[..., 0] * 0

    elsewhere(lambda values: values * -0.7 + 1e-7)
    assert check(summed, normal(64, 64) * 1e9).verdict == "pass"


@pytest.mark.parametrize(
    "call",
    [
        lambda: check(torch.linalg.svdvals, normal(8, 8)),
        lambda: check(lambda x: torch.sort(x.round()), normal(64, 64)),
        lambda: check(F.dropout, normal(64, 64)),
    ],
    ids=["svdvals", "ties", "dropout"],
)
def test_what_has_several_right_values_is_no_fault(call: Callable[[], Verdict], elsewhere: Callable[..., None]) -> None:
    elsewhere(rounded, rounded)
    assert call().verdict == "pass"
