"""PrecisionDebugger(task="free_benchmark"): calls of a running program are asked questions, as msprobe's task of that
name asks; nothing of it reaches the program."""

from __future__ import annotations

import csv
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pytest_probe import frameworks
from pytest_probe.capture.config import CaptureConfig, SeedGiven, YesOrNo
from pytest_probe.capture.debugger import PrecisionDebugger
from pytest_probe.capture.framework import part
from pytest_probe.capture.ranks import named_rank
from pytest_probe.capture.recorder import say
from pytest_probe.capture.scope import Scope
from pytest_probe.check import CaseOutcome, CaseRuns, Checker, RunRequest
from pytest_probe.errors import SettingsError
from pytest_probe.features.relations.checks import Relations
from pytest_probe.features.relations.memory import TIMES
from pytest_probe.features.self_check.checks import SelfChecks
from pytest_probe.features.self_check.no_jumps import JUMP, STEPS, WITH_STEPS
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.registry import Registry
from pytest_probe.standards.tables import classes_of
from pytest_probe.system.decoding import decode

_log = logging.getLogger("pytest_probe")
_COLUMNS = "rank pert_mode stage step api_name max_rel dtype shape output_index".split()
# What each of msprobe's modes asks: a question, or a relation.
_QUESTION = {"improve_precision": "wider-dtype", "to_cpu": "cpu", "add_noise": "no-jumps", "bit_noise": "no-jumps"}
_RELATION = {"no_change": "again", "change_value": "batch"}
# Numbers that are drawn are others each time.
_WITHOUT = frozenset("random uninitialised".split())
_FIXING = ("improve_precision", "to_cpu")
# Of a sample, in a step that is drawn one of so many calls is asked: no call of the other steps is so much as seen.
_SHARE = 10
_NAMES = "give a list of texts, as ['gelu', 'softmax']"
# Above the second of them a draw of a random number is too coarse to tell one of so many.
_Count = Annotated[int, Meta(ge=1, le=2**53, description=f"give a whole number from 1 to {2**53:,}")]
_Texts = Annotated[tuple[str, ...], Meta(description=_NAMES)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """msprobe's keys, and sample: one of so many calls is asked, drawn; 1: each, up to max_sample a step and API.
    fuzz_device, fuzz_level, if_preheat and preheat_step change nothing: no limits are learned."""

    dump_path: Annotated[str, Meta(description="give the path of a folder")]
    task: Literal["free_benchmark"] = "free_benchmark"
    level: Literal["L1"] = "L1"
    scope: _Texts = ()
    names: _Texts = field(default=(), name="list")
    fuzz_stage: Literal["forward", "backward"] = "forward"
    pert_mode: Literal["improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu"] = (
        "improve_precision"
    )
    fuzz_device: Literal["npu", "cpu"] = "npu"
    fuzz_level: Literal["L1"] = "L1"
    handler_type: Literal["check", "fix"] = "check"
    if_preheat: Annotated[bool, Meta(description="give true or false")] = False
    preheat_step: _Count = 15
    max_sample: _Count = 20
    sample: _Count = 1
    seed: SeedGiven = None
    deterministic: YesOrNo = field(default=None, name="is_deterministic")


def _checked(config: Config) -> Config:
    """Raises SettingsError for what does not go together."""
    where = "free_benchmark: "
    if config.fuzz_stage == "backward" and not config.names:
        raise SettingsError(f"{where}fuzz_stage", "backward", "gradients take memory: name APIs in list")
    if config.handler_type == "fix" and config.pert_mode not in _FIXING:
        raise SettingsError(f"{where}pert_mode", config.pert_mode, f"fix takes {' or '.join(_FIXING)}")
    if config.handler_type == "fix" and config.fuzz_stage == "backward":
        raise SettingsError(f"{where}fuzz_stage", "backward", "fix replaces results of forward calls alone")
    if len(config.scope) not in (0, 2):
        raise SettingsError(f"{where}scope", list(config.scope), "give the first and the last name of an interval")
    return config


class Training:
    """Asks calls of a program between start and stop; what PrecisionDebugger does for other tasks."""

    def __init__(self, given: Mapping[str, Any], framework: str) -> None:
        """Raises SettingsError."""
        if framework != frameworks.DEFAULT:
            raise SettingsError("framework", framework, f"free_benchmark asks calls of {frameworks.DEFAULT}")
        self.config = _checked(decode(dict(given), Config, lambda steps: "free_benchmark"))
        recorded = CaptureConfig(self.config.dump_path, scope=self.config.scope, names=self.config.names)
        self._fixes, self._on_cpu = self.config.handler_type == "fix", self.config.pert_mode == "to_cpu"
        self._scope = Scope(recorded)
        self._part = part(framework, "asking")
        self._calls = self._part.made(self._scope.wants_api, self)
        self._dump = PrecisionDebugger(task="tensor", dump_path=Path(self.config.dump_path, "suspicious"))
        self._random = random.Random(0)
        # A program that ends no step is in its first for good.
        self._one_of = self.config.sample
        self._numbers, self._asked_of = Counter[str](), Counter[str]()
        self._without = WITH_STEPS if _QUESTION.get(self.config.pert_mode) == "no-jumps" else _WITHOUT
        self._checkers: dict[str, Checker] = {}
        self._warned: set[str] = set()
        self._wanted = self._running = self._closed = False
        self._drawn = True
        self._step = self._steps = self._asked = self._replaced = self._seen = 0
        self._suspicious = Counter[str]()
        self._seconds, self._began = 0.0, time.perf_counter()

    def start(self) -> None:
        self._wanted = True
        self._run(self._drawn)

    def stop(self) -> None:
        self._wanted = False
        self._run(False)

    def end_step(self) -> None:
        """The calls of a step are counted anew."""
        self._steps += self._drawn
        self._step += 1
        self._numbers.clear()
        self._asked_of.clear()
        self._scope.again()
        self._dump.step()
        self._one_of = min(self.config.sample, _SHARE)
        self._drawn = self._random.random() * self.config.sample < self._one_of
        self._run(self._wanted and self._drawn)

    def _run(self, running: bool) -> None:
        if running != self._running:
            (self._calls.begin if running else self._calls.end)()
            self._running = running

    def finish(self) -> None:
        """Stop, and say once what was found and what it cost."""
        self.stop()
        if self._closed:
            return
        self._closed = True
        self._dump.finish()
        is_open = bool(self._numbers)
        whole = max(time.perf_counter() - self._began, 1e-9)
        cost = f"{self._seconds:.3g} s, {100 * self._seconds / whole:.2g} % of the time"
        found = sum(self._suspicious.values())
        steps = f"{self._steps + is_open:,} of {self._step + is_open:,} steps"
        words = f"asked {self._asked:,} of {self._seen:,} calls in {steps}, {found:,} suspicious outputs, {cost}"
        fixed = f"; replaced the results of {self._replaced:,} calls" if self._fixes else ""
        say(f"pytest-probe: free_benchmark: {words}{fixed}")

    # What the mode asks. Nothing raises.

    @property
    def backward(self) -> bool:
        return self.config.fuzz_stage == "backward"

    def chosen(self, api: str) -> str:
        self._seen += 1
        call = f"{api}.{self._numbers[api]}"
        self._numbers[api] += 1
        # In order: a call may open an interval, or close it.
        if not self._scope.wants(call) or (self._one_of > 1 and self._random.random() * self._one_of >= 1):
            return ""
        if not self._fixes and self._asked_of[api] >= self.config.max_sample:
            return ""
        if not self._without.isdisjoint(classes_of(frameworks.signatures().canonical(api))):
            return ""
        self._asked_of[api] += 1
        return call

    def fixed(self, call: Any) -> Any:
        found = self._part.otherwise(call, on_cpu=self._on_cpu) if self._fixes else None
        self._replaced += found is not None
        return found

    def ask(self, call: Any) -> bool:
        if self._fixes or self._closed:
            return False
        began = time.perf_counter()
        try:
            self._asked += 1
            return bool(call.place) and not self._is_settled(call) and self._ask(call)
        finally:
            self._seconds += time.perf_counter() - began

    def keep(self, again: Callable[[], None]) -> None:
        self._dump.start()
        try:
            again()
        finally:
            self._dump.stop()

    def failed(self, api: str, error: Exception) -> None:
        if api not in self._warned:
            self._warned.add(api)
            _log.warning("pytest-probe: %s was not asked (%s: %s)", api, type(error).__name__, error)

    def _ask(self, call: Any) -> bool:
        place = call.place
        if place not in self._checkers:
            request = RunRequest(device=place, diagnosed=False)
            self._checkers[place] = Checker(request, Registry.default())
        checker, function, key = self._checkers[place], call.function, f"{call.api}.{self._step}"
        cases = checker.pairs(
            function,
            function,
            call.args,
            call.kwargs,
            api=call.api,
            backward=self.backward,
            gradients=call.gradients,
            key=key,
        )
        checked = self._verdict(checker, cases)
        # Compared with a reference a warning says that nobody can tell; else it is what a question finds.
        suspects = ("error",) if self.config.pert_mode in _FIXING else ("warning", "error")
        wrong = [each for each in checked.verdict.outputs if each.verdict in suspects]
        if wrong:
            self._write(call, wrong)
        return bool(wrong)

    def _is_settled(self, call: Any) -> bool:
        """Is a result right by what is cheap to tell? The numbers of all others are measured."""
        mode = self.config.pert_mode
        if self.backward or mode == "change_value":
            return False
        if mode == "no_change":
            return bool(self._part.repeats(call, TIMES))
        if _QUESTION[mode] == "no-jumps":
            return bool(self._part.moves_little(call, STEPS, JUMP))
        return bool(self._part.agrees(call, on_cpu=self._on_cpu))

    def _verdict(self, checker: Checker, cases: Sequence[Any]) -> CaseOutcome:
        mode = self.config.pert_mode
        if mode in _QUESTION:
            checks = SelfChecks(checker, [_QUESTION[mode]])
            *_, found = (checks.of(case) for case in cases)
            return found
        runs = CaseRuns(checker)
        *_, kept = (runs.run(case) for case in cases)
        found = Relations(checker, [_RELATION[mode]]).of(kept)
        own = tuple(each for each in found.verdict.outputs if each.name.startswith("relation."))
        return CaseOutcome(found.case, type(found.verdict)(found.verdict.verdict, mode, outputs=own))

    def _write(self, call: Any, wrong: Sequence[OutputVerdict]) -> None:
        path = Path(self.config.dump_path, "free_benchmark.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(_COLUMNS)
            for each in wrong:
                self._suspicious[call.api] += 1
                index = each.name.rpartition(".")[2] if each.name[-1:].isdigit() else ""
                writer.writerow(
                    [
                        named_rank()[0] or 0,
                        self.config.pert_mode,
                        self.config.fuzz_stage,
                        self._step,
                        call.name,
                        each.metrics.get("max_rel", each.reason.partition("\n")[0]),
                        each.dtype,
                        list(each.shape),
                        index,
                    ]
                )
