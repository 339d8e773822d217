"""Parameters that ranks hold alike, over the steps of a dump."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray
from tests.support.other_plugins import Ran
from tests.support.running import ran

Values = Mapping[str, AnyArray]


def write(
    folder: Path, *, values: Callable[[int, int], Values], steps: int = 3, ranks: int = 4, data: bool = True
) -> Path:
    """Dumps of a module, "layer3", whose parameters are values(step, rank)."""
    for step in range(steps):
        for rank in range(ranks):
            place = folder / f"step{step}" / f"rank{rank}"
            (place / "dump_tensor_data").mkdir(parents=True)
            held = {name: tensor(place, name, each, data) for name, each in values(step, rank).items()}
            entry = {"input_args": [], "input_kwargs": {}, "output": [], "parameters": held}
            header = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
            content = {**header, "data": {"Module.layer3.Linear.forward.0": entry}}
            (place / "dump.json").write_text(json.dumps(content))
    return folder


def tensor(folder: Path, name: str, array: AnyArray, data: bool) -> dict[str, Any]:
    np.save(folder / "dump_tensor_data" / f"{name}.npy", array)
    wide = array.astype(np.float64)
    statistics = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": float(np.linalg.norm(wide))}
    looks = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(array.shape), "requires_grad": True}
    return {**looks, **statistics, **({"data_name": f"{name}.npy"} if data else {})}


def weight(step: int, salt: int = 0) -> AnyArray:
    return np.random.default_rng([step, salt]).standard_normal(32).astype(np.float32)


def alike(step: int, rank: int) -> Values:
    return {"weight": weight(step), "bias": np.full(4, step, np.float32)}


def drifting(step: int, rank: int) -> Values:
    changed = weight(step)
    changed[3] += 1e-6 * (rank == 2) * (step > 1)
    return {"weight": changed}


def corrupt_from_the_start(step: int, rank: int) -> Values:
    return {"weight": weight(step, salt=int(rank == 1))}


def spread(step: int, rank: int) -> Values:
    """Parts of a tensor, which all begin with zeros; and one that all ranks hold."""
    return {"bias": weight(step, rank) * (step > 0), "weight": weight(step, rank), "norm": np.ones(8, np.float32)}


def two_by_two(step: int, rank: int) -> Values:
    """Two parts, each on two ranks."""
    return {"weight": weight(step, rank % 2)}


def two_by_two_drifting(step: int, rank: int) -> Values:
    return {"weight": weight(step, rank % 2 + 5 * (step == 2 and rank == 3))}


def named(folder: Path) -> Path:
    """Gradients behind the reduction, as a hook of the program's own saves them."""
    torch = pytest.importorskip("torch")
    for step in range(2):
        for rank in range(4):
            place = folder / f"step{step}" / f"rank{rank}"
            place.mkdir(parents=True)
            gradient = torch.from_numpy(weight(step, salt=int(rank == 3 and step == 1)))
            torch.save({"layer3.weight": gradient, "own": torch.from_numpy(weight(step, rank))}, place / "grads.pt")
    return folder


# What is written, how many parameters pass, and what is said of the one that differs.
SCENARIOS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "drifting": (partial(write, values=drifting), 0, "layer3.weight, rank 2 of 4, first step 2"),
    "statistics": (partial(write, values=drifting, data=False), 0, "layer3.weight, rank 2 of 4, first step 2"),
    "corrupt": (partial(write, values=corrupt_from_the_start), 0, "layer3.weight, rank 1 of 4, first step 0"),
    "drifting parts": (
        partial(write, values=two_by_two_drifting),
        0,
        "layer3.weight, ranks 1, 3 of 4, first step 2",
    ),
    "named": (named, 0, "layer3.weight, rank 3 of 4, first step 1"),
    "alike": (partial(write, values=alike), 1, ""),
    "spread": (partial(write, values=spread), 0, ""),
    "two by two": (partial(write, values=two_by_two), 1, ""),
    "one rank": (partial(write, values=alike, ranks=1), 0, ""),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run of all dumps: each folder is a run of its own."""
    folder = tmp_path_factory.mktemp("replicas")
    dumps = [f"--probe-dump={make(folder / name).name}" for name, (make, _, _) in SCENARIOS.items()]
    return ran(folder, *dumps, "--probe-device=recorded", "-k", "replicas", "--probe-out=out")


@pytest.mark.parametrize("name", SCENARIOS)
def test_replicas_that_differ_are_an_error_and_no_others(judged: Ran, name: str) -> None:
    _, passed, words = SCENARIOS[name]
    label = "grads.pt" if name == "named" else f"{name}/"
    rows = [row for row in judged.rows if label in row["id"]]
    wrong = [row["reason"] for row in rows if row["verdict"] == "error"]
    assert wrong == ([f"replicas differ: {words}"] if words else [])
    assert sum(row["verdict"] == "pass" for row in rows) == passed
