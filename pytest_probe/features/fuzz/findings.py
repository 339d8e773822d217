"""What a search found: calls that fail, shrunk, each with its verdict and a script; the search's verdict; and a finding
as a record of a dump of our own, which is a regression case from then on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check.check import Checker
from pytest_probe.check.gradients import generated
from pytest_probe.check.outcome import PreparedCall
from pytest_probe.errors import DumpError, NoReference
from pytest_probe.features.fuzz.drawn import arguments_text
from pytest_probe.features.fuzz.search import Effort, Findings, Search, breaking, wrong
from pytest_probe.features.fuzz.shrinking import shrink
from pytest_probe.features.fuzz.templates import Template
from pytest_probe.features.fuzz.trial import JudgedCall, Target, Trials
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.model.dump import TENSOR_FOLDER, Direction, DtypeSpec
from pytest_probe.model.result import FUZZED, FatalCall
from pytest_probe.model.run import Arguments, Leaf, floats_of
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import AnyArray, dtype_name
from pytest_probe.system.files import replacing, try_lock

# Kinds of broken contracts that are shrunk, each by a search of its own.
_CONTRACTS = 3
_LOCK_PAUSE = 0.05  # seconds
_HEADER: Mapping[str, Any] = {"task": "tensor", "level": "L1", "dump_data_dir": TENSOR_FOLDER}
_PLAIN = (bool, int, float, str)


class Finding(Struct, frozen=True):
    """A call that fails. incoming are the incoming gradients by output, where its backward is what fails; script makes
    the call, "" where it cannot be written down."""

    api: str
    arguments: Arguments
    direction: Direction
    verdict: Verdict
    incoming: Mapping[str, AnyArray] = field(default_factory=dict)
    script: str = ""

    def __str__(self) -> str:
        """The call, its tensors by dtype and shape."""
        return arguments_text(self.api, self.arguments)


def _literal_script(checker: Checker, target: Target, found: JudgedCall, direction: Direction, reason: str) -> str:
    """The script of a call whose outputs nobody has: "" for a function of the project's, which no script can name."""
    case = target.case(found.call, found.arguments, direction)
    prepared = checker.prepare(case, gradient=False)
    if not isinstance(prepared, PreparedCall) or prepared.reference.candidate.replaced:
        return ""
    reference = prepared.reference
    incoming: dict[str, AnyArray] = {}
    if direction == "backward":
        dtype = next(iter(floats_of(reference.leaves).values()), np.dtype(np.float32))
        for name in reference.run.differentiable:
            like = np.empty(reference.run.outputs[name].shape, dtype)
            incoming[name] = generated(case, name, like, checker.request.seed)
    wanted = sorted(reference.wanted.names) if incoming and reference.wanted is not None else []
    device = checker.engines_of(target.framework).device_name
    title, candidate = f"{case.id}: {reason}", reference.candidate
    call = LiteralCall(title, device, candidate.path, candidate.arguments, wanted, incoming)
    return reference.framework.literal_script(call)


class SearchResult(Struct, frozen=True):
    """What a search found. numbers is the call with wrong numbers, contracts calls that break one; fatal are the calls
    that ended the process of an earlier try; deaths are fatal calls that were drawn again."""

    findings: Findings
    numbers: Finding | None = None
    contracts: Sequence[Finding] = ()
    fatal: Sequence[FatalCall] = ()
    deaths: Sequence[Finding] = ()

    def failures(self, *, strict: bool) -> list[Finding]:
        """What fails the item. strict: broken contracts do."""
        first = [] if self.numbers is None else [self.numbers]
        return [*first, *self.deaths, *(self.contracts if strict else ())]


def search_result(trials: Trials, templates: Sequence[Template], effort: Effort, shown: Checker) -> SearchResult:
    """Search, and shrink what was found. shown judges the calls that are reported: it may say what caused a failure."""
    target = trials.target
    findings = Search(trials, templates).run(effort)
    numbers = None
    if findings.failed is not None:
        # A call that has wrong numbers.
        found = shrink(trials, findings.failed[1], wrong, shown)
        failing = found.failing
        assert failing is not None
        direction, verdict, sides = failing.case.direction, failing.verdict, failing.worst
        incoming, script = {} if sides is None else sides.replay.incoming, ""
        if sides is not None:
            reference, title = sides.replay.reference, f"{failing.case.id}: {verdict.reason}"
            candidate, device = reference.candidate, sides.replay.source.name
            wanted = sorted(name.removeprefix("grad.") for name in sides.expected if name.startswith("grad."))
            given = sides.actual.values() if candidate.replaced else ()
            actual = [value for value in given if isinstance(value, np.ndarray)]
            call = LiteralCall(title, device, candidate.path, candidate.arguments, wanted, incoming, actual)
            script = reference.framework.literal_script(call)
        numbers = Finding(target.api, found.arguments, direction, verdict, incoming, script)
    standard, contracts = shown.request.standard, []
    for kind, first in list(findings.contracts.items())[:_CONTRACTS]:
        # The first call that breaks that contract, shrunk by a search for it alone, which meets it as the first search
        # did. Kept in no database: the next run would take it for wrong numbers.
        fails = breaking(kind)
        again = Search(trials, templates, fails).run(replace(effort, database=None)).failed
        broken = shrink(trials, first if again is None else again[1], fails, shown)
        way: Direction = "backward" if len(broken.checked) > 1 else "forward"
        script = "" if broken.rejected else _literal_script(shown, target, broken, way, broken.contract)
        verdict = Verdict("error", standard, broken.contract)
        contracts.append(Finding(target.api, broken.arguments, way, verdict, script=script))
    fatal = [call for call in trials.fatal.values() if call.kind != NoReference.kind]
    deaths = []
    for each in fatal:
        if each.call.key in trials.met:
            # Nothing of it runs here but its reference.
            met, way = trials.met[each.call.key], each.call.direction
            verdict = Verdict("error", standard, each.reason, each.kind)
            script = _literal_script(shown, target, met, way, each.reason)
            deaths.append(Finding(target.api, met.arguments, way, verdict, script=script))
    return SearchResult(findings, numbers, contracts, fatal, deaths)


def verdict_of(found: SearchResult, standard: str, *, strict: bool) -> Verdict:
    """The verdict on a search: an error where numbers are wrong or a call ended the process, under strict also where a
    contract is broken; a skip where the reference rejected every call."""
    findings, notes = found.findings, tuple(f"{FUZZED}{line}" for line in _lines(found))
    failures = found.failures(strict=strict)
    if failures:
        verdict = failures[0].verdict
        return replace(verdict, reason=f"{failures[0]}: {verdict.reason}", notes=(*verdict.notes, *notes))
    if found.fatal:
        first = found.fatal[0]
        return Verdict("error", standard, f"{first.call}: {first.reason}", first.kind, notes=notes)
    if findings.examples == sum(findings.rejected.values()) and not found.contracts:
        why = next(iter(findings.rejected), "no call could be drawn")
        return Verdict("skip", standard, f"the reference rejects every call that was drawn: {why}", "nothing to fuzz")
    if findings.known:
        return replace(next(iter(findings.known.values())), notes=notes)
    if findings.worst is not None:
        verdict = findings.worst[2]
        return replace(verdict, notes=(*verdict.notes, *notes))
    return Verdict("pass", standard, notes=notes)


def _lines(found: SearchResult) -> Iterator[str]:
    """What is reported of every search: its size, the worst call, calls that ended the process, broken contracts."""
    findings = found.findings
    yield f"{findings.examples} calls, {sum(findings.rejected.values())} of them rejected by the reference"
    if findings.worst is not None:
        drawn, share, _ = findings.worst
        yield f"worst: {drawn.with_seed}, {share:.2g} of the limit"
    for known in findings.known:
        yield f"known finding: {known}"
    for fatal in found.fatal:
        yield str(fatal)
    for contract in found.contracts:
        yield f"contract: {contract}: {contract.verdict.reason}"
    for other in list(findings.contracts.values())[_CONTRACTS:]:
        yield f"contract: {arguments_text(found.contracts[0].api, other.arguments)}: {other.contract}"


def append(path: Path, found: Finding, framework: str) -> str:
    """Add the call to the dump of its framework in a folder, which is made if it is missing; the record's name.
    Raises OSError, and DumpError for a file that is no dump, or one of another framework, and for a call with an
    argument that is neither a tensor nor plain."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / "dump.json"
    with (path / ".lock").open("w") as lock:
        while not try_lock(lock):  # another worker appends
            time.sleep(_LOCK_PAUSE)
        content: dict[str, Any] = {**_HEADER, "framework": framework, "data": {}}
        if file.exists():
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                wanted = "give a folder without it, or a dump of ours"
                raise DumpError(file, f"it is no JSON ({error})", wanted) from error
        if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
            raise DumpError(file, "it has no object `data`", "give a folder without it, or a dump of ours")
        recorded = content.get("framework", frameworks.DEFAULT)
        if recorded != framework:
            words = f"it holds calls of {recorded}, and this is one of {framework}"
            raise DumpError(file, words, "give another folder")
        api, data = found.api, content["data"]
        number = sum(name.startswith(f"{api}.") and name.endswith(".forward") for name in data)
        name = f"{api}.{number}"
        writer = _Writer(file, name, framework)
        arguments = found.arguments
        args = [writer.value(value, f"forward.input.{place}") for place, value in enumerate(arguments.args)]
        kwargs = {key: writer.value(value, f"forward.kwargs.{key}") for key, value in arguments.kwargs.items()}
        probe = {"tuples": writer.tuples}
        data[f"{name}.forward"] = {"input_args": args, "input_kwargs": kwargs, "probe": probe}
        if found.direction == "backward":
            incoming = [writer.tensor(Leaf(array), f"backward.{place}") for place, array in found.incoming.items()]
            data[f"{name}.backward"] = {"input": incoming, "output": []}
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return name


class _Writer:
    """Arguments as a dump's JSON has them; tensors go to files of NumPy's."""

    def __init__(self, file: Path, name: str, framework: str) -> None:
        self._file = file
        self._folder = file.parent / TENSOR_FOLDER
        self._folder.mkdir(exist_ok=True)
        self._name = name
        self._signatures = frameworks.signatures(framework)
        self.tuples: list[str] = []

    def value(self, value: Any, place: str) -> Any:
        if isinstance(value, Leaf):
            return self.tensor(value, place)
        if isinstance(value, Sequence) and not isinstance(value, str):
            if isinstance(value, tuple):
                self.tuples.append(place.removeprefix("forward."))
            return [self.value(item, f"{place}.{index}") for index, item in enumerate(value)]
        if isinstance(value, DtypeSpec):
            _, kind, text = self._signatures.written(value.name)
            return {"type": kind, "value": text}
        if value is not None and not isinstance(value, _PLAIN):
            raise DumpError(self._file, f"{place} of the call is a {type(value).__name__}", "copy the script instead")
        return None if value is None else {"type": type(value).__name__, "value": value}

    def tensor(self, leaf: Leaf, place: str) -> dict[str, Any]:
        file = f"{self._name}.{place}.npy"
        np.save(self._folder / file, leaf.array)
        kind, _, dtype = self._signatures.written(dtype_name(leaf.array.dtype))
        entry: dict[str, Any] = {
            "type": kind,
            "dtype": dtype,
            "shape": list(leaf.array.shape),
            **dict.fromkeys(("Max", "Min", "Mean", "Norm")),
            "requires_grad": leaf.requires_grad,
            "data_name": file,
        }
        if leaf.strides is not None:
            entry["stride"] = list(leaf.strides)
        if leaf.offset:
            # A place in memory so many elements behind an aligned one.
            entry["address"] = 1 << 30 | leaf.offset * leaf.array.itemsize
        return entry
