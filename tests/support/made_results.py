"""Results of runs that nobody made: as many cases as a test or a benchmark asks for, with plots of real numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from pytest_probe.check.pair_metrics import answer_of
from pytest_probe.model.details import Details, Plots
from pytest_probe.model.dump import Frame
from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import ArgumentRow, Diagnosis, Element, OutputVerdict, Verdict
from pytest_probe.numerics.error_plots import error_map, errors_of, histogram, points, sample
from pytest_probe.reports.results_file import SCHEMA

APIS = ("linear", "layer_norm", "gelu", "softmax", "scaled_dot_product_attention", "embedding", "dropout", "conv2d")
RUN: dict[str, Any] = {
    "schema": SCHEMA,
    "settings": {
        "seed": 0, "inputs": "auto", "standard": "auto", "dtypes": ["recorded"], "mode": ["acc"], "repeat": 1,
        "strict": False,
    },
    "seed": 0,
    "versions": {"python": "3.11.7", "pytest-probe": "0.1.0", "pytest": "9.2.0", "numpy": "2.4.6"},
    "devices": [{"device": "cpu", "framework": "torch", "version": "2.13.0", "modes": "none", "hardware": "a CPU"}],
    "dumps": [{"label": "dump.json", "path": "/home/user/dump.json", "digest": f"sha256:{64 * '0'}"}],
    "started": "2026-11-23T07:00:00+00:00",
    "finished": "2026-11-23T07:03:20+00:00",
    "exit_status": 1,
    "not_run": 0,
}  # fmt: skip
FRAME = Frame("/home/user/project/model/layers.py", 120, "forward", "x = self.norm(x + self.attention(x, mask=mask))")


def made_results(count: int, failing: int = 0, *, details: bool = True) -> Iterator[Result]:
    """So many cases, of which so many, evenly spread, fail; a warning for each tenth of those. details: with what a
    report shows of a case."""
    every = count // failing if failing else count + 1
    for number in range(count):
        wrong = failing > 0 and number % every == every // 2 + number // every % 2
        verdict = "error" if wrong and number // every % 10 else "warning" if wrong else "pass"
        yield made_result(number, verdict, details=details)


def made_result(number: int, verdict: Any = "pass", *, details: bool = True) -> Result:
    """One case; its numbers depend on its own number alone."""
    rng = np.random.default_rng(number)
    api, direction = APIS[number // 2 % len(APIS)], ("forward", "backward")[number % 2]
    ratio = float(rng.lognormal(1.0 if verdict == "pass" else 7.0, 1.0))
    ratio = min(ratio, 60.0) if verdict == "pass" else max(ratio, 70.0)
    name = f"Functional.{api}.{number // 2}.{direction}"
    output = _output(direction, verdict, ratio, rng)
    arguments = tuple(
        ArgumentRow(f"input.{place}", (16, 128, 768), "float32", "-4.17653 .. 4.20128") for place in range(3)
    )
    found = Verdict(verdict, "auto", f"{output.name}: {output.summary}" if output.reason else "", outputs=(output,))
    shown = None
    if details:
        command = f"pytest 'dumps/step0/dump.json::{name}' --probe-device=cpu --probe-seed=0"
        shown = Details.of(command, arguments, (FRAME,) * 6, FRAME, _plots(output, rng))
    return Result.of(
        found,
        PortableId("dump.json", name),
        api=f"Functional.{api}",
        direction=direction,
        dtype="float32",
        device="cpu",
        duration=float(rng.lognormal(-6, 1)),
        place=number // 2,
        module=f"layers.{number // 64}.{('attention', 'mlp')[number // 8 % 2]}",
        details=shown,
    )


def made_pairs(count: int, own: Collection[int] = ()) -> Iterator[Result]:
    """So many cases beside those of another dump: equal up to the first that has an error of its own; the rest inherit
    it."""
    for number in range(count):
        status: Status = "own" if number in own else "inherited" if number > min(own, default=count) else "equal"
        yield made_pair(number, status)


def made_pair(number: int, status: Status, other: str = "") -> Result:
    """One case beside that of another dump, which has its name where other is ""."""
    result = made_result(number, "error" if status in ("own", "replicas") else "pass", details=False)
    paired = Paired(status, other or result.portable_id.entry)
    if status not in ("equal", "unmatched"):
        gap = 10.0 ** -(3 + number % 4)
        paired = structs.replace(paired, nearer="A", noise_a=0.5, noise_b=31.0, gap=gap)
    return with_pair(result, structs.replace(paired, suspect="B" if status == "own" else ""))


def with_pair(result: Result, paired: Paired) -> Result:
    return structs.replace(result, answers=(answer_of(paired),))


def _output(direction: str, verdict: Any, ratio: float, rng: np.random.Generator) -> OutputVerdict:
    metrics: dict[str, Any] = {
        "max_abs": float(rng.lognormal(-12)), "max_rel": float(rng.lognormal(-8)), "max_ulp": float(rng.lognormal(1)),
        "mean_ulp": float(rng.random()), "mismatch": float(rng.random()), "nonfinite_mismatch": 0,
        "noise_ratio": ratio, "noise_ratio_limit": 64.0, "noise_rms": ratio / 9, "noise_rms_limit": 8.2, "k": 4,
        "scale_from": "float64",
    }  # fmt: skip
    name = "output.0" if direction == "forward" else "grad.input.0"
    if verdict == "pass":
        return OutputVerdict(name, (16, 128, 768), "float32", verdict, "noise", metrics=metrics)
    worst = tuple(Element((3, place, 17), 0.75 + place, 0.25, 4096.0, ratio) for place in range(5))
    found = Diagnosis(300, 4096, {}, "<= 0.5 ▁  ▂█▁ 4.2e+06 ULP", "rows 12:16 of dim 0", "all times 1.0003", "factor")
    reason = f"noise ratio {ratio:.4g} (limit 64)"
    return OutputVerdict(name, (16, 128, 768), "float32", verdict, "noise", reason, metrics, worst, diagnosis=found)


def _plots(output: OutputVerdict, rng: np.random.Generator) -> Plots:
    """Of a slice as wide as any that is drawn."""
    expected = rng.standard_normal((48, 80))
    actual = (expected * (1 + 1e-5 * rng.standard_normal((48, 80)))).astype(np.float32)
    taken = sample(actual, expected)
    errors = errors_of(*taken)
    ratios = rng.lognormal(0, math.log(float(output.metrics["noise_ratio"]) + 2) / 3, 4000)
    return Plots(
        output.name, histogram(ratios), histogram(errors), points(*taken, errors), error_map(actual, expected, (5, 5))
    )


def write_run(folder: Path, results: Iterator[Result], **run: Any) -> Path:
    """A folder as --probe-out leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "results.jsonl").open("wb") as file:
        file.writelines(msgspec.json.encode(result) + b"\n" for result in results)
    (folder / "run.json").write_bytes(msgspec.json.encode({**RUN, **run}))
    return folder
