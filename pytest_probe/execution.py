"""One case on one device: run both sides, ask the standard, and say what was found."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe import inputs
from pytest_probe.errors import NoReference, RecordError, Unsupported
from pytest_probe.frameworks.base import Device, Framework, Leaf
from pytest_probe.inputs import Arguments
from pytest_probe.inputs.generated import generate, rounded
from pytest_probe.inputs.stored import StoredTensors
from pytest_probe.inputs.streams import Streams
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, widen
from pytest_probe.questions import questions
from pytest_probe.records.model import Call, Direction, Dump, Record, TensorSpec, tensors
from pytest_probe.registry import Registry
from pytest_probe.replay import DeviceRaised, Replay, Replayer, first_line, floats_of, mapped, same_bytes
from pytest_probe.standards.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict, worst_of


@dataclass(frozen=True, slots=True)
class Case:
    """A record made runnable in one direction and one dtype; dtype None: as recorded."""

    dump: Dump
    record: Record
    direction: Direction
    dtype: str | None = None

    @property
    def id(self) -> str:
        name = f"{self.record.name}.{self.direction}"
        return name if self.dtype is None else f"{name}[{self.dtype}]"

    @property
    def api(self) -> str:
        return f"{self.record.namespace}.{self.record.api}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run was asked for: device None is the framework's own choice, workers share the machine's cores."""

    device: str | None = None
    seed: int = 0
    inputs: str = "auto"
    standard: str = "auto"
    workers: int = 1


AdjustInputs = Callable[[Case, Arguments], Arguments | None]
AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


def load_framework(name: str) -> Framework:
    """The framework that a dump names. Raises Unsupported where it cannot be run here."""
    if name != "pytorch":
        raise Unsupported(f"a dump of {name}; this version replays pytorch", "another framework")
    if importlib.util.find_spec("torch") is None:
        raise Unsupported("torch is not installed: pip install 'pytest-probe[torch]'", "framework not installed")
    from pytest_probe.frameworks.torch import TorchFramework

    return TorchFramework()


class Checker:
    """Checks cases on one device. Keeps the last record's forward run for its backward item, until `release`."""

    def __init__(
        self,
        conditions: Conditions,
        registry: Registry,
        *,
        adjust_inputs: AdjustInputs | None = None,
        adjust_verdict: AdjustVerdict | None = None,
    ) -> None:
        self.conditions = conditions
        self.registry = registry
        self.adjust_inputs = adjust_inputs
        self.adjust_verdict = adjust_verdict
        self._kept: tuple[object, Replay | Exception] | None = None
        self._last: tuple[Replay, Mapping[str, Any], Mapping[str, Any]] | None = None

    @cached_property
    def framework(self) -> Framework:
        framework = load_framework("pytorch")
        if self.conditions.workers > 1:
            framework.share_threads(self.conditions.workers)
        return framework

    @cached_property
    def device(self) -> Device:
        """The device under test. Raises SettingsError where the framework has none of that name."""
        name = self.conditions.device or self.framework.default_device()
        made = self.registry.devices.get(name.split(":", 1)[0])
        return self.framework.device(name) if made is None else made(name)

    @cached_property
    def _replayer(self) -> Replayer:
        registry = self.registry
        return Replayer(self.framework, self.device, registry.calls, registry.references, registry.namespaces)

    def describe(self) -> dict[str, str]:
        """Framework, version, device and the flags that change numerics."""
        return {"device": self.device.name, **self.framework.describe()}

    def release(self) -> None:
        """Forget the run kept for the sibling item, and its memory."""
        self._kept = self._last = None

    def check(self, case: Case) -> Verdict:
        """The verdict on a case. What is wrong with a record, a file or a call ends in a skip or an error verdict."""
        try:
            verdict = self._check(case)
        except (Unsupported, RecordError) as error:
            kind = error.kind if isinstance(error, Unsupported) else "broken record"
            verdict = Verdict("skip", self.conditions.standard, str(error), kind)
        except DeviceRaised as error:
            verdict = Verdict("error", self.conditions.standard, str(error))
        adjusted = self.adjust_verdict(case, verdict) if self.adjust_verdict is not None else None
        return verdict if adjusted is None else adjusted

    def save(self, path: Path) -> None:
        """Write the last case's inputs, outputs and gradients of both sides. Raises OSError."""
        if self._last is None:
            return
        replay, actual, expected = self._last
        arrays = {name: leaf.array for name, leaf in replay.leaves.items()}
        for side, values in (("seed", replay.seeds), ("actual", actual), ("expected", expected)):
            arrays |= {f"{side}.{name}": value for name, value in values.items() if isinstance(value, np.ndarray)}
        self.framework.save(path, arrays)

    def _check(self, case: Case) -> Verdict:
        replay = self._replay(case)
        if case.direction == "forward":
            actual, expected, structural = _forward_sides(replay)
        else:
            actual, expected, structural = self._backward_sides(case, replay)
        self._last = (replay, actual, expected)
        judge = self.registry.standards[self.conditions.standard]
        asked = questions(case.api, case.direction, replay, actual, expected, self.conditions.seed)
        judged = (item if isinstance(item, OutputVerdict) else judge.judge(item) for item in asked)
        outputs = (*structural, *judged)
        return _summed(self.conditions.standard, outputs, replay)

    def _replay(self, case: Case) -> Replay:
        key = (id(case.dump), case.record.name, case.dtype)
        if self._kept is None or self._kept[0] != key:
            self.release()
            self._kept = (key, self._made(case))
        replay = self._kept[1]
        if isinstance(replay, Exception):
            raise replay
        return replay

    def _made(self, case: Case) -> Replay | Exception:
        try:
            call = case.dump.decode(case.record)
            arguments = self._arguments(case, call)
            return self._replayer.replay(case.record, call, arguments, as_recorded=case.dtype is None)
        except (Unsupported, RecordError, DeviceRaised) as error:
            return error

    def _arguments(self, case: Case, call: Call) -> Arguments:
        inputs.check_size(call, case.dtype, inputs.available_memory())
        arguments = inputs.build(
            call,
            record=case.record.name,
            api=case.api,
            dtype=case.dtype,
            seed=self.conditions.seed,
            kind=self.conditions.inputs,
            files=StoredTensors(case.dump.path, case.dump.data_dirs, self.framework.load),
        )
        adjusted = self.adjust_inputs(case, arguments) if self.adjust_inputs is not None else None
        return arguments if adjusted is None else adjusted

    def _backward_sides(
        self, case: Case, replay: Replay
    ) -> tuple[dict[str, Any], dict[str, Any], tuple[OutputVerdict, ...]]:
        if replay.wanted is None:
            raise NoReference("no output of the reference can be differentiated")
        replay.seeds = _seeds(case, replay, self.conditions.seed)
        try:
            expected = self.framework.gradients(replay.expected, replay.seeds)
        except Exception as error:
            raise NoReference(f"the gradient in float64 raised {type(error).__name__}: {first_line(error)}") from error
        try:
            actual = self.framework.gradients(replay.actual, replay.seeds)
        except Exception as error:
            raise self._replayer.device_trouble(error) from error
        renamed = [{f"grad.{name}": value for name, value in side.items()} for side in (actual, expected)]
        return renamed[0], renamed[1], tuple(_missing(renamed[0], renamed[1]))


def _seeds(case: Case, replay: Replay, seed: int) -> dict[str, AnyArray]:
    """The incoming gradient of every differentiable output: as recorded where it was, else generated.

    An output that the record marks as having got none (null) is left out, unless that leaves nothing.
    """
    names = [name for name in replay.expected.differentiable if name in replay.actual.differentiable]
    if not names:
        raise NoReference("no output of the device can be differentiated")
    arrays = list(replay.expected.outputs)
    recorded = replay.candidate.arguments.gradients or ()
    places = names if len(recorded) != len(arrays) else arrays
    given = dict(zip(places, recorded, strict=False))
    found: dict[str, AnyArray] = {}
    for name in names:
        output = replay.actual.outputs[name]
        leaf = given.get(name)
        if leaf is not None and leaf.array.shape == output.shape:
            found[name] = leaf.array.astype(output.dtype)
        elif name not in given or leaf is not None:
            found[name] = _generated(case, name, output, seed)
    return found or {name: _generated(case, name, replay.actual.outputs[name], seed) for name in names}


def _generated(case: Case, name: str, output: AnyArray, seed: int) -> AnyArray:
    spec = TensorSpec(output.dtype.name, output.shape)
    return rounded(generate(spec, Streams(case.record.name, seed).at(f"grad.{name}")), spec.dtype)


def _missing(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    for name in sorted(actual.keys() ^ expected.keys()):
        side = actual if name in actual else expected
        reason = "the device gives a gradient, the reference none" if name in actual else "the device gives no gradient"
        if np.any(side[name]):
            yield OutputVerdict(name, side[name].shape, side[name].dtype.name, "error", "structure", reason)


def _forward_sides(replay: Replay) -> tuple[dict[str, Any], dict[str, Any], tuple[OutputVerdict, ...]]:
    """Return values and changed arguments of both sides, and verdicts on what differs in structure."""
    actual, expected = dict(replay.actual.outputs), dict(replay.expected.outputs)
    for name in sorted(replay.changed - set(replay.expected.returned.values())):
        actual[name], expected[name] = replay.actual.after(name), replay.expected.after(name)
    one_sided = sorted(actual.keys() ^ expected.keys())
    troubles = [_structural(name, actual.get(name), expected.get(name)) for name in one_sided]
    for name, leaf in replay.leaves.items():
        if name not in replay.changed and not same_bytes(replay.actual.after(name), leaf.array):
            reason = "the device changed this argument; the reference leaves it alone"
            troubles.append(OutputVerdict(name, leaf.array.shape, leaf.array.dtype.name, "error", "mutated", reason))
    return actual, expected, tuple(troubles)


def _structural(name: str, actual: Any, expected: Any) -> OutputVerdict:
    present = actual if actual is not None else expected
    reason = (
        "the device returns this, the reference does not" if expected is None else "the device does not return this"
    )
    return OutputVerdict(name, np.shape(present), _dtype_name(present), "error", "structure", reason)


def _dtype_name(value: Any) -> str:
    return value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__


def _summed(standard: str, outputs: tuple[OutputVerdict, ...], replay: Replay) -> Verdict:
    worst = worst_of(outputs)
    outcome = "pass" if worst is None else worst.verdict
    reason = "" if worst is None or not worst.reason else f"{worst.name}: {worst.reason}"
    rows = _rows(replay) if SEVERITY[outcome] > SEVERITY["pass"] else ()
    names = sorted({dtype.name for dtype in floats_of(replay.leaves).values()})
    return Verdict(outcome, standard, reason, "", "+".join(names), outputs, rows, replay.notes)


def _rows(replay: Replay) -> tuple[ArgumentRow, ...]:
    """The argument table of a report."""
    found: list[ArgumentRow] = []

    def row(value: Any, name: str) -> Any:
        if isinstance(value, Leaf):
            found.append(ArgumentRow(name, value.array.shape, value.array.dtype.name, _range(value.array)))
        else:
            found.append(ArgumentRow(name, None, type(value).__name__, str(value)[:60]))
        return value

    mapped(replay.candidate.arguments, row)
    found.extend(
        ArgumentRow(f"grad.{name}", seed.shape, seed.dtype.name, _range(seed)) for name, seed in replay.seeds.items()
    )
    return tuple(found)


def _range(array: AnyArray) -> str:
    wide = np.abs(array) if is_complex(array.dtype) else widen(array) if is_floating(array.dtype) else array
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return "empty" if not array.size else "no finite value"
    text = f"{finite.min():.6g} .. {finite.max():.6g}"
    return text if finite.size == array.size else f"{text}, {array.size - finite.size:,} not finite"


def preview(case: Case, registry: Registry, conditions: Conditions | None = None) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    checker = Checker(conditions or Conditions(device="cpu"), registry)
    try:
        framework = checker.framework
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory())
        if case.api not in registry.references or case.api not in registry.calls:
            framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        kind = error.kind if isinstance(error, Unsupported) else "broken record"
        return Verdict("skip", checker.conditions.standard, str(error), kind)
    return None


def floating_dtypes(call: Call) -> tuple[str, ...]:
    """The floating dtypes of a call's tensor arguments, sorted."""
    specs = itertools.chain(tensors(call.args), tensors(dict(call.kwargs)))
    return tuple(sorted({spec.dtype for _, spec in specs if is_floating(spec.dtype) or is_complex(spec.dtype)}))
