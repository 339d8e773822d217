"""Noise ratios of planted faults and legitimate differences: `python benchmarks/planted_faults.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pytest_probe.model.verdict import Verdict  # noqa: E402
from tests.evidence.test_faults import FAULTS, HEALTHY, dump_of  # noqa: E402
from tests.support.checking import verdicts  # noqa: E402

# Significand bits of each mode that rounds operands.
BITS = {"tf32": 11, "hf32": 12, "bf16": 8}


def checked(call: Any, patch: Any, **request: Any) -> dict[str, Verdict]:
    """The verdicts on the patched API's own items."""
    name, owner, attribute = call[:3]
    with tempfile.TemporaryDirectory() as folder:
        path = dump_of(call, Path(folder))
        with mock.patch.object(owner, attribute, patch(getattr(owner, attribute))):
            return {
                case: verdict for case, verdict in verdicts(path, **request).items() if case.startswith(f"{name}.0.")
            }


def row(label: str, found: dict[str, Verdict]) -> str:
    """The worst output of the items: verdict, largest and RMS ratio with their limits."""
    outputs = [output for verdict in found.values() for output in verdict.outputs if "noise_ratio" in output.metrics]
    worst = max(
        outputs, key=lambda output: float(output.metrics["noise_ratio"]) / float(output.metrics["noise_ratio_limit"])
    )
    numbers = [
        float(worst.metrics[key]) for key in ("noise_ratio", "noise_ratio_limit", "noise_rms", "noise_rms_limit")
    ]
    verdict = "error" if any(item.verdict == "error" for item in found.values()) else "pass"
    ratios = f"{numbers[0]:,.3g} ({numbers[1]:,.3g}) | {numbers[2]:,.3g} ({numbers[3]:,.3g})"
    return f"| {label} | {verdict} | {ratios} | {worst.metrics['scale_from']} |"


def main() -> None:
    print("| | verdict | largest ratio (limit) | RMS ratio (limit) | scale from |\n|---|---|---|---|---|")
    for label, (call, patch, _) in FAULTS.items():
        print(row(f"fault: {label}", checked(call, patch)))
    for label, (call, patch) in HEALTHY.items():
        print(row(f"legitimate: {label}", checked(call, patch)))


if __name__ == "__main__":
    main()
