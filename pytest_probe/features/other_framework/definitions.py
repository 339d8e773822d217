"""Do two frameworks differ in what a call means, and not in how it is rounded?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Checked, Checker
from pytest_probe.check.replay import Replay
from pytest_probe.model.run import Arguments, Leaf, with_leaves
from pytest_probe.numerics.dtypes import is_complex, is_floating, widen

# The kind of a skip.
DIFFER = "frameworks differ"


class Definitions(Struct, frozen=True):
    """Asks both sides for the same call in float64: what differs there is no rounding. checker judges the device's side
    on the CPU beside the reference's."""

    checker: Checker

    def differing(self, checked: Checked) -> str:
        """What the sides of a case differ by in float64 on the CPU; "" where they agree, and where nothing can be
        asked."""
        if checked.worst is None:
            return ""
        replay = checked.worst.replay
        case = replace(checked.case, dtype="float64", arguments=_wide(replay))
        verdict = self.checker.run(case).verdict
        return verdict.headline if verdict.verdict == "error" else ""


def _wide(replay: Replay) -> Arguments:
    arguments = replay.reference.candidate.arguments
    leaves: Mapping[str, Leaf] = {name: _in_float64(leaf) for name, leaf in arguments.tensors.items()}
    return with_leaves(arguments, leaves)


def _in_float64(leaf: Leaf) -> Leaf:
    dtype: Any = leaf.array.dtype
    if is_complex(dtype):
        return replace(leaf, array=leaf.array.astype(np.complex128))
    return replace(leaf, array=np.asarray(widen(leaf.array), np.float64)) if is_floating(dtype) else leaf
