"""Do two frameworks differ in what a call means, and not in how it is rounded?"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.check import Checked, Checker
from pytest_probe.model.run import with_leaves
from pytest_probe.numerics.dtypes import is_complex, is_floating, widen

# The kind of a skip.
DIFFER = "frameworks differ"


def differing(on_cpu: Checker, checked: Checked) -> str:
    """What the sides of a case differ by in float64 on the CPU, where nothing is rounded; "" where they agree, and
    where nothing can be asked. on_cpu judges the device's side on the CPU beside the reference's."""
    if checked.worst is None:
        return ""
    arguments = checked.worst.replay.reference.candidate.arguments
    leaves = dict(arguments.tensors)
    for name, leaf in arguments.tensors.items():
        if is_complex(leaf.array.dtype):
            leaves[name] = replace(leaf, array=leaf.array.astype(np.complex128))
        elif is_floating(leaf.array.dtype):
            leaves[name] = replace(leaf, array=np.asarray(widen(leaf.array), np.float64))
    case = replace(checked.case, dtype="float64", arguments=with_leaves(arguments, leaves))
    verdict = on_cpu.run(case).verdict
    return verdict.headline if verdict.verdict == "error" else ""
