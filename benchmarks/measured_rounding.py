"""A trial: what the CPU's 16-bit kernels round inside, measured in place of the known steps of frameworks/torch/cpu16.

`python benchmarks/measured_rounding.py [options of verdict_quality.py]` runs verdict_quality.py with it. The
framework's own kernel runs on eight neighbouring 16-bit inputs. Its errors against float64 on the same inputs are the
samples of its rounding, where they scatter. What is the same in all eight is a fault, and counts for nothing.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pytest_probe.check import alternatives, perturbed, replay  # noqa: E402
from pytest_probe.model.comparison import RunKind  # noqa: E402
from pytest_probe.model.run import Way  # noqa: E402
from pytest_probe.numerics import noise_ratio  # noqa: E402
from pytest_probe.numerics.dtypes import AnyArray, widen  # noqa: E402

DRAWS = 8
# A kind that no standard asks for.
OWN: Any = "own kernel"

_own = perturbed.PerturbedRuns._own
_runs = alternatives.OutputRuns.runs


def own(runs: perturbed.PerturbedRuns, kind: RunKind) -> Way | None:
    if kind != OWN:
        return _own(runs, kind)
    return Way(runs._reference.framework.device("cpu"), autocast=runs._reference.autocast)


def expected(output: alternatives.OutputRuns) -> AnyArray | None:
    """The reference's output, on exact inputs."""
    runs = output.source
    reference = runs._reference
    if runs._how.direction == "forward":
        found = replay.results(reference.run, reference.changed)
    else:
        run = reference.again(reference.leaves, reference.way, reference.wanted)
        found = reference.framework.gradients(run, runs._incoming)
    return widen(np.asarray(found[output.name])) if output.name in found else None


def measured(output: alternatives.OutputRuns, kind: RunKind, count: int) -> list[AnyArray]:
    if kind not in ("coarse", "rounded"):
        return _runs(output, kind, count)
    kernel, exact = (output.source.output(output.name, each, DRAWS) for each in (OWN, "neighbours"))
    pairs = [(widen(a), widen(b)) for a, b in zip(kernel, exact, strict=False) if a.shape == output.shape == b.shape]
    base = expected(output) if len(pairs) == DRAWS and kind == "coarse" else None
    if base is None:
        return []
    errors = np.stack([a - b for a, b in pairs])
    return [base + np.nan_to_num(error) for error in errors] if noise_ratio.scatters(errors) else []


def main() -> None:
    perturbed.ON_INPUTS_OF = {**perturbed.ON_INPUTS_OF, OWN: "neighbours"}
    perturbed.MOVED_BY_NARROW = (*perturbed.MOVED_BY_NARROW, OWN)
    setattr(perturbed.PerturbedRuns, "_own", own)  # noqa: B010
    setattr(alternatives.OutputRuns, "runs", measured)  # noqa: B010
    sys.argv = ["verdict_quality.py", *sys.argv[1:]]
    runpy.run_path(str(ROOT / "benchmarks" / "verdict_quality.py"), run_name="__main__")


if __name__ == "__main__":
    main()
