"""Parameters that ranks hold alike, over the steps of a dump."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray

Values = Mapping[str, AnyArray]


def write(
    folder: Path, values: Callable[[int, int], Values], *, steps: int = 3, ranks: int = 4, data: bool = True
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


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (drifting, "replicas differ: layer3.weight, rank 2 of 4, first step 2"),
        (corrupt_from_the_start, "replicas differ: layer3.weight, rank 1 of 4, first step 0"),
        (two_by_two_drifting, "replicas differ: layer3.weight, ranks 1, 3 of 4, first step 2"),
    ],
)
def test_replicas_that_differ_are_an_error(
    pytester: pytest.Pytester, tmp_path: Path, values: Callable[[int, int], Values], words: str, data: bool
) -> None:
    dump = write(tmp_path / "dump", values, data=data)
    result = pytester.runpytest_inprocess(f"--probe-dump={dump}", "--probe-device=recorded", "-k", "replicas")
    assert result.parseoutcomes()["failed"] == 1
    assert fnmatchcase(" ".join(" ".join(result.outlines).split()), f"*{words}*")


@pytest.mark.parametrize(("values", "passed"), [(alike, 1), (spread, 0), (two_by_two, 1)])
def test_what_is_held_alike_or_spread_is_no_error(
    pytester: pytest.Pytester, tmp_path: Path, values: Callable[[int, int], Values], passed: int
) -> None:
    dump = write(tmp_path / "dump", values)
    result = pytester.runpytest_inprocess(f"--probe-dump={dump}", "--probe-device=recorded", "-k", "replicas")
    assert (result.parseoutcomes().get("passed", 0), result.parseoutcomes().get("failed", 0)) == (passed, 0)


def test_one_rank_alone_is_asked_nothing(pytester: pytest.Pytester, tmp_path: Path) -> None:
    dump = write(tmp_path / "dump", alike, ranks=1)
    result = pytester.runpytest_inprocess(f"--probe-dump={dump}", "--probe-device=recorded", "-k", "replicas")
    assert "passed" not in result.parseoutcomes()


def test_named_tensors_of_ranks_are_compared_as_well(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Gradients behind the reduction, as a hook of the program's own saves them."""
    torch = pytest.importorskip("torch")
    for step in range(2):
        for rank in range(4):
            folder = tmp_path / "dump" / f"step{step}" / f"rank{rank}"
            folder.mkdir(parents=True)
            gradient = torch.from_numpy(weight(step, salt=int(rank == 3 and step == 1)))
            torch.save({"layer3.weight": gradient, "own": torch.from_numpy(weight(step, rank))}, folder / "grads.pt")
    result = pytester.runpytest_inprocess(
        f"--probe-dump={tmp_path / 'dump'}", "--probe-device=recorded", "-k", "replicas"
    )
    assert result.parseoutcomes()["failed"] == 1
    said = " ".join(" ".join(result.outlines).split())
    assert fnmatchcase(said, "*replicas differ: layer3.weight, rank 3 of 4, first step 1*")
