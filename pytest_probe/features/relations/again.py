"""Does a call give the same bits each time?"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.call_again import Apart
from pytest_probe.features.relations.memory import ZONE
from pytest_probe.features.relations.relation import Call, Found, Relation, left_out
from pytest_probe.numerics.dtypes import is_complex, is_floating
from pytest_probe.user_errors import allowing_refusal

# Further calls of each kind.
TIMES = 5
# Elements before a tensor's first one.
_FAR = 3 * ZONE


class Again(Relation):
    name = "again"
    broken = "warning"

    def find(self, call: Call) -> Found:
        if call.row.nondeterministic:
            left_out("the framework documents it as non-deterministic")
        memory: dict[str, Any] = {}

        def first(name: str, tensor: Any) -> Any:
            # At another place of an allocation than any tensor before: a cache may know the usual ones.
            zones = None if call.row.whole_memory else call.framework.zones(tensor, _FAR)
            memory[name] = tensor if zones is None else zones.tensor
            return memory[name]

        def same(name: str, tensor: Any) -> Any:
            return call.framework.refilled(memory[name], tensor) if name in memory else tensor

        _ = call.base
        # A call may refuse the other numbers: the memory is known then, all the same.
        with allowing_refusal():
            # The numbers of each floating tensor in other places.
            others = dict(call.leaves)
            for name, leaf in others.items():
                if is_floating(leaf.array.dtype) or is_complex(leaf.array.dtype):
                    array = np.roll(leaf.array, 1 + leaf.array.size // 2) * leaf.array.dtype.type(0.5)
                    others[name] = replace(leaf, array=array)
            call.results(others, placing=first)
        ways = (("on the memory that other numbers were in", same), ("on fresh memory", None))
        differing: list[tuple[str, Apart]] = []
        for words, placing in ways:
            for _ in range(TIMES):
                differing += [(words, each) for each in call.apart(call.results(placing=placing))][:1]
        if not differing:
            unasked = "" if memory or not call.leaves else "all on fresh memory"
            return Found(runs=2 * TIMES, unasked=unasked)
        for _, each in differing:
            call.leave_out(each)
        words = " and ".join(dict.fromkeys(words for words, _ in differing))
        apart = differing[0][1]
        return Found(f"{len(differing)} of {2 * TIMES} further calls differ, {words}: {apart.words}", apart, 2 * TIMES)
