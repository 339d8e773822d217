"""--probe-framework and --probe-reference-framework: records by another framework; without them, a second opinion: what
another framework says of a call whose result is an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import CaseOutcome, Checker
from pytest_probe.check.pair_metrics import noise_of
from pytest_probe.errors import ProbeError
from pytest_probe.frameworks.mapping.table import PAIRS
from pytest_probe.model.run import with_leaves
from pytest_probe.numerics.dtypes import is_complex, is_floating, widen
from pytest_probe.option_types import Given, Type
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.system.text import suggestion


class Framework(Type):
    """A framework, as its module is called; None without one."""

    def read(self, given: Given) -> str | None:
        if not given.text:
            return None
        found = [module for name, module in frameworks.MODULES.items() if not frameworks.unavailable(name)]
        if given.text not in frameworks.MODULES.values():
            near = suggestion(found, given.text)
            raise given.wrong(f"give an installed one: {', '.join(found) or 'none is'}{near}")
        missing = frameworks.unavailable(frameworks.named(given.text))
        if missing:
            raise given.wrong(f"{missing}; installed here: {', '.join(found) or 'none'}")
        return given.text


# Of how many errors of an API another framework is asked.
ASKED = 5
# The kind of a skip.
DIFFER = "frameworks differ"


class ByOtherFramework(Feature):
    judges = ("error",)

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        settings = probe.settings
        self.calls_by = settings.framework or "", settings.reference_framework or ""
        self._asked = Counter[str]()
        self._checkers: dict[str, Checker] = {}

    def header(self) -> Iterable[str]:
        for name in self.probe.frameworks if any(self.calls_by) else ():
            device, reference = self.probe.sides_of(name)
            yield f"probe: {name} records: the device's calls by {device}, float64 by {reference}"

    def judge(self, judged: ItemVerdict) -> None:
        checked = judged.checked
        # What a function of the user's gives, and what two calls were compared by, has an answer of its own.
        if checked.case.pair is not None or any(each.pair for each in judged.verdict.answers):
            return
        if any(self.calls_by):
            # An error that both frameworks show in float64, too, comes of their definitions.
            same = len(set(self.probe.sides_of(checked.case.dump.framework))) == 1
            if not same and (found := self._differing(checked)):
                words = f"{DIFFER}: in float64 on the CPU, too, {found}"
                judged.verdict = replace(judged.verdict, verdict="skip", reason=words, kind=DIFFER, outputs=())
        elif self.probe.settings.standard == "auto" and checked.worst is not None:
            self._ask(judged, checked)

    @cached_property
    def _on_cpu(self) -> Checker:
        return self._checker(device="cpu", standard="auto", calls={})

    def _ask(self, judged: ItemVerdict, checked: CaseOutcome) -> None:
        """How far another framework's kernel errs on the same inputs where the CPU's does. It changes no verdict."""
        assert checked.worst is not None
        api, own = checked.case.api, frameworks.MODULES.get(checked.case.dump.framework)
        self._asked[api] += 1
        # Those to which a map leads from the records of this one, and that are installed.
        others = (pair.split("_")[1] for pair in PAIRS if pair.split("_")[0] == own)
        module = next((each for each in others if not frameworks.unavailable(frameworks.named(each))), "")
        if not module or checked.worst.replay.source.name != "cpu" or self._asked[api] > ASKED:
            return
        if module not in self._checkers:
            self._checkers[module] = self._checker(framework=module)
        arguments = checked.worst.replay.reference.candidate.arguments
        try:
            verdict = self._checkers[module].run(replace(checked.case, arguments=arguments)).verdict
        except ProbeError:
            return
        ratio = noise_of(verdict)
        if verdict.verdict == "skip" or ratio is None:
            return
        right = "which is an error as well" if verdict.verdict == "error" else "which is right"
        words = f"on the CPU {module} errs by a noise ratio of {ratio:.3g}, {right}"
        judged.verdict = replace(judged.verdict, notes=(*judged.verdict.notes, words))

    def _differing(self, checked: CaseOutcome) -> str:
        """What the sides of a case differ by in float64 on the CPU, where nothing is rounded, and only what the call
        means differs; "" where they agree, and where nothing can be asked."""
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
        verdict = self._on_cpu.run(case).verdict
        return verdict.headline if verdict.verdict == "error" else ""

    def _checker(self, calls: dict[str, Any] | None = None, **request: Any) -> Checker:
        """One that measures nothing and keeps nothing; calls: what the project has put in the place of APIs."""
        registry = None if calls is None else replace(self.probe.registry, calls=calls)
        return self.probe.quick_checker.changed(registry, measuring=None, cache=None, repeat=1, **request)
