"""What auto makes of torch.compile as the device: kernels that inductor generates, each call compiled alone. With
--device cuda, of torch's own kernels there.

    python benchmarks/other_backends.py [--source dumps|opinfo|calls] [--samples 1] [--dtypes float32,bfloat16]

Prints, by source and dtype, how many outputs pass, get a warning or an error, and each that does not pass below the
table. Compiling takes seconds a call; torch keeps what it compiled for the next run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.quality.kinds import Watched  # noqa: E402
from benchmarks.quality.samples import LeftOut, Samples, Wish, seed_of  # noqa: E402
from benchmarks.verdict_quality import SOURCES, sources  # noqa: E402
from pytest_probe import frameworks  # noqa: E402
from pytest_probe.check import CaseOutcome, Checker, RunRequest  # noqa: E402
from pytest_probe.errors import Unsupported  # noqa: E402
from pytest_probe.frameworks.torch.framework import TorchDevice  # noqa: E402
from pytest_probe.model.verdict import Verdict  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402

COMPILED = "inductor"


class Inductor(TorchDevice):
    """The CPU, by kernels that are compiled for the call, forward and backward."""

    def __init__(self, name: str) -> None:
        super().__init__("cpu")
        self.name = name

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        torch.compiler.reset()
        return torch.compile(lambda *a, **k: function(*a, **k), dynamic=False)(*args, **kwargs)


def judged(samples: Samples, device: str, allow: Sequence[str]) -> tuple[Counter[str], list[str]]:
    """Verdicts on outputs by their outcome, and in words where they are neither pass nor skip."""
    registry = Registry.default()
    registry.devices[COMPILED] = Inductor
    checker = Checker(RunRequest(device=device, allow=tuple(allow), diagnosed=False), registry)
    framework = Watched(frameworks.load())
    checker.engines.framework = framework
    counts: Counter[str] = Counter()
    listed: list[str] = []
    for sample in samples:
        if isinstance(sample, LeftOut):
            continue
        torch.manual_seed(seed_of(sample.label))
        framework.draws = False
        try:
            cases = sample.cases(checker)
        except Unsupported:
            continue
        checked: CaseOutcome | None = None
        for case in cases:
            checked = checker.run(case, checked)
            if not framework.draws:  # random numbers of its own
                listed += counted(checked.verdict, f"{sample.label} {case.direction}", counts)
    return counts, listed


def counted(verdict: Verdict, where: str, counts: Counter[str]) -> list[str]:
    if not verdict.outputs:
        counts["raised" if verdict.verdict == "error" else verdict.verdict] += 1
        return [f"raised: {where}: {verdict.reason.splitlines()[0]}"] if verdict.verdict == "error" else []
    counts.update(output.verdict for output in verdict.outputs)
    wrong = (output for output in verdict.outputs if output.verdict in ("error", "warning"))
    return [f"{output.verdict}: {where} {output.name}: {output.reason}" for output in wrong]


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| source | dtype | pass | warning | error | raised | skip |\n|---|---|---|---|---|---|---|")
    below: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        known = sources(Path(folder), None)
        for source in options.source or SOURCES:
            for dtype in options.dtypes.split(","):
                counts, listed = judged(
                    known[source](Wish(dtype, options.samples, options.api)), options.device, options.allow
                )
                cells = (f"{counts[name]:,}" for name in ("pass", "warning", "error", "raised", "skip"))
                print(f"| {source} | {dtype} | {' | '.join(cells)} |", flush=True)
                below += [f"- {source} {dtype}: {line}" for line in listed]
    print("\n" + "\n".join(below))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", choices=SOURCES, help="repeatable; default: all")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--samples", type=int, default=1, help="samples of each operator or call (default: 1)")
    parser.add_argument("--device", default=COMPILED, help=f"{COMPILED} (default), or one of torch's, as cuda")
    parser.add_argument("--allow", nargs="*", default=["none"], help="device modes; auto: what flags allow")
    parser.add_argument("--api", default="*", help="a pattern that APIs' names match, as 'Functional.*'")
    return parser.parse_args()


if __name__ == "__main__":
    main()
