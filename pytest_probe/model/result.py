"""What is kept of a case: its name and its result, plain data for JSON, junit and a process boundary."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from pytest_probe.model.baseline import WORSE, Change, Compared
from pytest_probe.model.details import Details
from pytest_probe.model.dump import Direction
from pytest_probe.model.measurement import CaseMemory, CaseTime
from pytest_probe.model.pairing import Paired
from pytest_probe.model.verdict import (
    EMULATED,
    RELATION,
    SEVERITY,
    SLOWER,
    Answer,
    Detects,
    Diagnosis,
    Outcome,
    OutputVerdict,
    Verdict,
)
from pytest_probe.system.text import printable, printable_line

# A number as a result holds it: one that is not finite is the text "nan", "inf" or "-inf", which JSON takes.
Plain: TypeAlias = bool | int | float | str | None


# What the search around an API's records is called behind the API: "Functional.softmax.fuzz".
SEARCH = ".fuzz"


# Those of --probe-dtype.
_CASE = re.compile(r"\.(forward|backward)(\[[^]]*\])?$")
_DTYPES = frozenset(("float64", "float32", "float16", "bfloat16"))


class PortableId(msgspec.Struct, frozen=True):
    """Names a case alike on every machine: "dump.json::Torch.add.0.forward[bfloat16]".

    label is the dump's, or the file of a test; entry is behind it, with the test's name where a test made the check
    ("test_gelu[64]::my_gelu.0.forward"); dtype is "" where the case ran as recorded, compiler "" where the run has
    one at most.
    """

    label: str
    entry: str
    dtype: str = ""
    compiler: str = ""

    @classmethod
    def parse(cls, text: str) -> PortableId:
        label, _, name = text.partition("::")
        if "[" not in name:
            return cls(label, name)
        found = {"entry": name}
        for field in ("compiler", "dtype"):
            entry, bracket, inside = found["entry"].rpartition("[")
            # The last one is a dtype's, or behind a case's name a compiler's; before that there may be a dtype's.
            compiled = inside[:-1] not in _DTYPES and _CASE.search(entry) is not None
            if bracket and inside.endswith("]") and compiled == (field == "compiler"):
                found |= {"entry": entry, field: inside[:-1]}
        return cls(label, **found)

    def __str__(self) -> str:
        return f"{self.label}::{self.name}"

    @property
    def name(self) -> str:
        """Without the label, as the item is called."""
        brackets = (f"[{each}]" for each in (self.dtype, self.compiler) if each)
        return f"{self.entry}{''.join(brackets)}"

    @property
    def is_search(self) -> bool:
        """Does it name a search, and no case?"""
        return self.entry.endswith(SEARCH)

    @property
    def call(self) -> str:
        """ "Torch.add.0"."""
        return self.entry.rpartition(".")[0]

    @property
    def api(self) -> str:
        """ "Torch.add"."""
        return self.call if self.is_search else self.call.rpartition(".")[0]

    @property
    def direction(self) -> str:
        return "" if self.is_search else self.entry.rpartition(".")[2]

    @property
    def in_any_dtype(self) -> PortableId:
        return PortableId(self.label, self.entry, compiler=self.compiler)


class ElementResult(msgspec.Struct, frozen=True):
    index: tuple[int, ...]
    actual: Plain
    expected: Plain
    ulp: Plain
    ratio: Plain


# A run that writes no measures, and an output that passed, have no word of what they lack.
class OutputResult(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    shape: tuple[int, ...]
    dtype: str
    verdict: Outcome
    standard: str
    reason: str
    metrics: dict[str, Plain]
    worst: tuple[ElementResult, ...]
    measures: dict[str, Plain] = {}
    diagnosis: Diagnosis | None = None
    detects: Detects | None = None

    @classmethod
    def of(cls, output: OutputVerdict) -> OutputResult:
        worst = tuple(
            ElementResult(tuple(map(int, each.index)), *map(plain, (each.actual, each.expected, each.ulp, each.ratio)))
            for each in output.worst
        )
        diagnosis = output.diagnosis
        if diagnosis is not None:
            counts = {name: (int(actual), int(expected)) for name, (actual, expected) in diagnosis.not_finite.items()}
            size, cause = (int(diagnosis.wrong), int(diagnosis.size)), printable_line(diagnosis.cause)
            # How it was found is no part of a result.
            diagnosis = Diagnosis(*size, counts, diagnosis.errors, diagnosis.where, cause, diagnosis.family)
        return cls(
            printable_line(output.name),
            tuple(map(int, output.shape)),
            output.dtype,
            output.verdict,
            output.standard,
            printable(output.summary),
            {name: plain(value) for name, value in output.metrics.items()},
            worst,
            {name: plain(value) for name, value in output.measures.items()},
            diagnosis,
            output.detects,
        )


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one item. The order of the fields is that of a line of `results.jsonl`.

    api is the namespace and API ("Functional.linear"), dtype what the case ran in, duration seconds; gate how it
    compares with a baseline, where the run has one; folded counts the records that are alike, of which this is the
    first; time and memory are there where the run measures them. place is that of the record in its dump, from 0,
    module the path of the module that made the call, and details what a report shows, for errors, warnings and the
    worst of the others, each where the run makes plots. answers are those to what the run asks besides.
    parts are the seconds of what the check did ("inputs", "device", "reference", "runs", "judge"), of duration.
    initialises: does the call build the model?
    framework and reference_framework made the calls of the device and of float64, "" where the record's own made both.
    """

    id: str
    api: str
    direction: str
    dtype: str
    device: str
    verdict: Outcome
    standard: str
    reason: str
    kind: str
    duration: float
    outputs: tuple[OutputResult, ...]
    notes: tuple[str, ...]
    gate: Compared | None = None
    folded: int = 0
    time: CaseTime | None = None
    memory: CaseMemory | None = None
    place: int | None = None
    module: str = ""
    details: Details | None = None
    framework: str = ""
    reference_framework: str = ""
    answers: tuple[Answer, ...] = ()
    parts: Mapping[str, float] = {}
    initialises: bool = False

    @classmethod
    def of(
        cls,
        verdict: Verdict,
        id: PortableId,
        *,
        api: str,
        direction: str,
        dtype: str,
        device: str,
        duration: float,
        gate: Compared | None = None,
        folded: int = 0,
        place: int | None = None,
        module: str = "",
        details: Details | None = None,
        frameworks: tuple[str, str] = ("", ""),
        initialises: bool = False,
    ) -> Result:
        return cls(
            str(id),
            api,
            direction,
            verdict.dtype or dtype,
            device,
            verdict.verdict,
            verdict.standard,
            printable(verdict.reason),
            printable_line(verdict.kind),
            max(0.0, duration - sum(each.totals.get("seconds", 0) for each in verdict.answers)),
            tuple(map(OutputResult.of, verdict.outputs)),
            tuple(map(printable, (*verdict.notes, *([f"called: {verdict.replaced}"] if verdict.replaced else [])))),
            gate,
            folded,
            verdict.time,
            verdict.memory,
            place,
            printable_line(module),
            details,
            framework=frameworks[0],
            reference_framework=frameworks[1],
            answers=tuple(replace(each, message=printable_line(each.message)) for each in verdict.answers),
            parts=verdict.parts,
            initialises=initialises,
        )

    @property
    def portable_id(self) -> PortableId:
        return PortableId.parse(self.id)

    @property
    def against(self) -> Paired | None:
        """What the case is where two sides made its call."""
        return next((each.pair for each in self.answers if each.pair is not None), None)

    @property
    def own_outputs(self) -> tuple[OutputResult, ...]:
        """Those of the call, without what was found on relations between calls."""
        return tuple(output for output in self.outputs if not output.name.startswith(RELATION))

    @property
    def accuracy(self) -> Outcome:
        """The verdict on its numbers alone."""
        if self.kind != SLOWER:
            return self.verdict
        return max((output.verdict for output in self.outputs), key=SEVERITY.__getitem__, default="pass")

    @property
    def decisive(self) -> tuple[OutputResult, ...]:
        """The outputs whose verdict is that of the whole."""
        return tuple(output for output in self.outputs if output.verdict == self.verdict)

    @property
    def change(self) -> Change | None:
        """How it compares with a baseline."""
        return None if self.gate is None else self.gate.change

    def fails(self, *, strict: bool, updates: bool = False, runxfail: bool = False) -> bool:
        """Did it fail its item, by the verdict or compared with a baseline? strict: a warning does; updates: the
        baseline takes what got worse; runxfail: what is known to fail does, as pytest's option has it."""
        if self.change == "known" and not runxfail:
            return False
        worse = self.change in WORSE and not updates
        return worse or self.verdict == "error" or (strict and self.verdict == "warning")

    @property
    def why(self) -> str:
        """Why it failed or was skipped."""
        if self.gate is not None and self.gate.change in WORSE and self.verdict != "error":
            return f"{WORSE[self.gate.change]}: {self.gate.reason}"
        return self.reason or "\n".join(f"{output.name}: {output.reason}" for output in self.decisive) or self.verdict

    @property
    def is_emulated(self) -> bool:
        """Did the device compute 16 bit in float32?"""
        return any(note.startswith(EMULATED) for note in self.notes)


def plain(value: Any) -> Any:
    """A metric as a builtin; NumPy's scalars become Python's, non-finite numbers text."""
    if isinstance(value, bool | str) or value is None:
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def number(value: Any) -> float:
    """The number behind a metric of a result; NaN if it has no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def rank(value: float) -> float:
    return math.inf if math.isnan(value) else value


# Calls of a search that end their process: what is announced before each, and what is known of the ones that did.


# How the notes of a search begin, which a run's summary shows.
FUZZED = "fuzz: "


class AnnouncedCall(msgspec.Struct, frozen=True):
    """A call that is about to run: key tells its arguments, where a search drew it, "" for another one; text shows
    them."""

    key: str
    text: str
    direction: Direction = "forward"

    @property
    def is_drawn(self) -> bool:
        return bool(self.key)

    def __str__(self) -> str:
        return self.text if self.direction == "forward" else f"{self.text}, {self.direction}"


class FatalCall(msgspec.Struct, frozen=True):
    """A call that ended its process. id is the portable id of its search, reason how the process died, kind that of the
    verdict on such a death."""

    id: str
    call: AnnouncedCall
    reason: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.call}: {self.reason}"
