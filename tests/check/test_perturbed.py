from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.perturbed import Perturbation, PerturbedRuns, perturbed
from pytest_probe.model.comparison import RunKind
from pytest_probe.model.dump import Direction
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from tests.support.replaying import leaf, normal, replay

U = 2.0**-24
ROOT = 3.0**0.5


def moved(values: Any, size: float = 0.01, inward: bool = False, dtype: str = "float64") -> AnyArray:
    generator = np.random.default_rng(0)
    return perturbed(np.asarray(values), lambda array: generator.random(array.shape), size, inward, dtype)


def runs_of(
    made: BothSides, roundoff: float = U, narrow: str = "float32", direction: Direction = "forward"
) -> PerturbedRuns:
    return PerturbedRuns(made, Perturbation("key", direction, roundoff, narrow))


# Arrays


def test_floats_move_uniformly_with_unit_variance() -> None:
    values = np.concatenate([[-9.0, 9.0], np.ones(20_000)])
    xi = (moved(values)[2:] - 1) / 0.01
    assert np.abs(xi).max() <= ROOT
    assert np.abs(xi).max() > 1.73
    assert abs(xi.std() - 1) < 0.01
    assert abs(xi.mean()) < 0.02


def test_values_stay_inside_their_own_range_and_move_towards_zero_where_they_must() -> None:
    assert moved([0.0, -0.0, 1.0, 2.0])[:2].tolist() == [0.0, 0.0]
    found = moved(np.repeat([-1.0, 1.0], 100))
    assert (found.min(), found.max()) == (-1.0, 1.0)
    assert len(np.unique(found)) > 50
    for values in (np.full(100, 3.0), np.float64(3.0), np.full(100, -3.0)):  # constants
        assert (np.abs(moved(values)) < 3.0).all()
    values = np.repeat([-2.0, 0.5, 2.0], 100)
    found = moved(values, inward=True)
    assert (np.abs(found) <= np.abs(values)).all()
    assert (found != values).any()
    for values in (np.arange(5), np.array([True, False])):  # which do not move
        assert moved(values) is values
    assert moved(np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("values", [[np.inf, 1.0, 2.0, -np.inf, np.nan], [np.nan, np.nan], [np.inf, np.inf]])
def test_perturbed_infinities_and_nan_stay(values: list[float]) -> None:
    found, given = moved(values), np.asarray(values)
    kept = ~np.isfinite(given)
    assert np.array_equal(found[kept], given[kept], equal_nan=True)
    assert np.isfinite(found[~kept]).all()


def test_complex_parts_move_apart() -> None:
    found = moved(np.array([1 + 2j, 2 + 1j, 1.5 + 1.5j] * 50))
    ratios = found.imag / found.real
    assert len(np.unique(ratios)) > 100
    assert found.dtype == np.complex128
    assert moved(np.ones(2) + 1j, dtype="float32").dtype == np.complex64


def test_narrow_values_are_widened_first() -> None:
    found = moved(np.linspace(1, 2, 100).astype(numpy_dtype("bfloat16")), size=U)
    assert found.dtype == np.float64
    assert (
        0 < np.abs(found / np.linspace(1, 2, 100).astype(numpy_dtype("bfloat16")).astype(float) - 1).max() <= ROOT * U
    )


# Runs


def test_runs_differ_and_are_made_once() -> None:
    made = runs_of(replay("Torch.exp", normal(10)))
    first = made.output("output.0", "perturbed", 2)
    again = made.output("output.0", "perturbed", 3)
    assert again[0] is first[0] or np.array_equal(again[0], first[0])
    assert len({run.tobytes() for run in again}) == 3
    assert len(made.output("output.0", "perturbed", 0)) == 0


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("perturbed", ROOT * U),
        ("perturbed_more", 4 * ROOT * U),
        ("perturbed_less", ROOT * U / 16),
        ("perturbed_narrow", ROOT * 2.0**-8),
    ],
)
def test_perturbed_inputs_move_by_a_roundoff_of_the_dtype(kind: RunKind, most: float) -> None:
    x = leaf(np.linspace(1, 2, 500))
    made = runs_of(replay("Torch.neg", x), narrow="bfloat16")
    (run,) = made.output("output.0", kind, 1)
    relative = np.abs(run / -np.linspace(1, 2, 500).astype(np.float32).astype(float) - 1).max()
    assert most / 2 < relative <= most * 1.0001


def test_float32_runs_are_float32s() -> None:
    (run,) = runs_of(replay("Torch.exp", normal(10))).output("output.0", "float32", 1)
    assert np.array_equal(run, run.astype(np.float32))


@pytest.mark.parametrize("kind", ["float32", "float32_steps", "perturbed_less"])
def test_double_precision_has_no_float32_runs(kind: RunKind) -> None:
    made = runs_of(replay("Torch.exp", normal(10, dtype="float64")), roundoff=2.0**-53)
    assert made.output("output.0", kind, 4) == []


def test_rounded_runs_are_on_the_inputs_of_narrowed_ones() -> None:
    """One step rounds nothing, since the output's own rounding is granted."""
    made = runs_of(replay("Torch.mul", normal(50), normal(50, seed=1)))
    rounded, narrowed = (made.output("output.0", kind, 2) for kind in ("narrow_steps_perturbed", "perturbed_narrow"))
    assert np.array_equal(rounded, narrowed)
    assert not np.array_equal(rounded[0], rounded[1])


def test_a_run_that_raises_is_drawn_again_towards_the_domain() -> None:
    x = leaf(np.concatenate([np.full(5, 0.5), [0.75, -0.75]]))
    total = float(np.sum(x.array))
    redrawn: list[torch.Tensor] = []

    def within(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.sum() > total:
            redrawn.append(tensor)
            raise ValueError("beyond the domain")
        return tensor * 2

    functions = {"X.within": within}
    made = runs_of(replay("X.within", x, calls=functions, references=functions))
    runs = made.output("output.0", "perturbed", 8)
    assert len(runs) == 8
    assert 0 < len(redrawn) < 16


def test_a_call_that_never_bears_it_has_no_runs() -> None:
    calls = []

    def once(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        if len(calls) > 2:
            raise ValueError("never again")
        return x

    functions = {"X.once": once}
    made = runs_of(replay("X.once", leaf([1.0]), calls=functions, references=functions))
    assert made.output("output.0", "perturbed", 4) == []
    assert len(calls) == 2 + 3


def test_perturbed_labels_stay() -> None:
    labels = np.array([1.0, -1.0] * 4)
    made = replay("Torch.add", leaf(np.arange(1.0, 9.0)), leaf(labels))
    fixed = Perturbation("key", "forward", U, fixed=frozenset({"input.0"}))
    (found,) = PerturbedRuns(made, fixed).output("output.0", "perturbed", 1)
    shift = np.abs(found - np.arange(1.0, 9.0) - labels)
    assert 0 < shift.max() <= ROOT * U


def test_slight_runs_move_equal_values_alike_and_then_the_other_way() -> None:
    made = runs_of(replay("Torch.mul", leaf([3.0, 5.0, 3.0, 7.0]), leaf([1.0])))
    first, second = (run - [3.0, 5.0, 3.0, 7.0] for run in made.output("output.0", "moved_slightly", 2))
    assert first[0] == first[2] != 0
    assert np.abs(first).max() < 7 * U * 2.0**-18
    # 3 and 7 are the ends of their range, which they do not leave.
    assert np.sign(first[1]) == -np.sign(second[1])


def test_rounding_by_chance_leaves_what_is_exact_but_quotients() -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x * 0.5, x / 4, x / 3]) + 0

    made = runs_of(
        replay("Mine.steps", leaf([3.0, 5.0]), calls={"Mine.steps": steps}, references={"Mine.steps": steps})
    )
    runs = np.stack(made.output("output.0", "rounded_by_chance", 64))
    assert (runs[:, 0] == [1.5, 2.5]).all()
    assert (runs[:, 1] == [0.75, 1.25]).all()
    unit = 2.0**-24
    # As a product with a third, which lies between two numbers of float32.
    assert set(runs[:, 2, 0]) == {1 - unit, 1.0, 1 + 2 * unit}
    assert np.abs(runs[:, 2, 1] - 5 / 3).max() < 4 * unit
    assert len(set(runs[:, 2, 1])) > 1
