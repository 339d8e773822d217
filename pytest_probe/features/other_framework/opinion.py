"""What another framework says of a call whose result is an error: how far its kernel errs on the same inputs, and
whether the two differ in what the call means, and not in how it is rounded."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Checked, Checker
from pytest_probe.check.pair_metrics import noise_of
from pytest_probe.errors import ProbeError
from pytest_probe.frameworks.mapping.table import PAIRS
from pytest_probe.model.run import with_leaves
from pytest_probe.numerics.dtypes import is_complex, is_floating, widen

# The kind of a skip.
DIFFER = "frameworks differ"


def asked_of(framework: str) -> str:
    """The module of the framework to which a map leads from the records of another one, where it is installed; else
    ""."""
    own = frameworks.MODULES.get(framework)
    others = (pair.split("_")[1] for pair in PAIRS if pair.split("_")[0] == own)
    return next((other for other in others if not frameworks.unavailable(frameworks.named(other))), "")


def opinion(checker: Checker, module: str, checked: Checked) -> str:
    """In words, what the other framework's kernel gives; "" where nothing corresponds to the call."""
    assert checked.worst is not None
    arguments = checked.worst.replay.reference.candidate.arguments
    try:
        verdict = checker.run(replace(checked.case, arguments=arguments)).verdict
    except ProbeError:
        return ""
    ratio = noise_of(verdict)
    if verdict.verdict == "skip" or ratio is None:
        return ""
    words = "which is an error as well" if verdict.verdict == "error" else "which is right"
    return f"on the CPU {module} errs by a noise ratio of {ratio:.3g}, {words}"


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
