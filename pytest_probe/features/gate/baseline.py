"""A baseline: what was measured of each case before, as JSON lines, whether two of them can be compared, and how one
takes in what a run found: only what moved is rewritten.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct, field

from pytest_probe.errors import ProbeError, ResultsError, SettingsError
from pytest_probe.model.baseline import Compared, KeptCase, KeptOutput, KeptTime, Spread, number
from pytest_probe.model.case import Case
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec, TensorSpec
from pytest_probe.model.result import PortableId
from pytest_probe.model.run import Array, Leaf
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import dtype_name
from pytest_probe.reports.results_file import Identity, decoded, refused
from pytest_probe.reports.results_file import differences as unequal
from pytest_probe.system.decoding import json_decoder, to_json
from pytest_probe.system.files import lock_or_assume, open_regular, replacing

_PLAIN = (type(None), bool, int, float, complex, str, slice, type(...), DtypeSpec, MemoryFormatSpec, SizeSpec)
# A spread beyond this says that luck decides.
_LARGEST_SPREAD = 1000.0
SCHEMA = 1
OPTION = "--probe-baseline"
UPDATE = "--probe-baseline-update"
# The columns of a line's outputs, and of its spread.
_COLUMNS = ("name", "rmse", "max_ulp", "mean_ulp", "noise_ratio", "k", "crc", "elements", "carriers")
_SPREAD_COLUMNS = ("rmse", "mean_ulp")
# Facts that identify a device: another device gives other bits.
_DEVICE = ("framework", "device", "hardware", "threads", "emulated")


def signature(case: Case) -> str:
    """The signature of a case, without statistics, devices and stored values. Raises RecordError."""
    if case.pair is not None:
        arguments = case.pair.arguments
        told = _words(list(arguments.args)), _words(dict(arguments.kwargs))
    else:
        call = case.dump.decode(case.record)
        told = _words(list(call.args)), _words(dict(call.kwargs))
    return hashlib.blake2b(f"{case.api}\0{told}".encode(errors="replace"), digest_size=4).hexdigest()


def _words(value: Any) -> str:
    if isinstance(value, TensorSpec):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (Leaf, Array)):
        return f"{dtype_name(value.array.dtype)}{list(value.array.shape)}"
    if isinstance(value, DeviceSpec):
        return "device"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(value[key])}' for key in sorted(value, key=str))}}}"
    # The repr of other objects may contain an address.
    return repr(value) if type(value) in _PLAIN else f"{type(value).__name__}"


def baseline_entry(id: str, signature: str, verdict: Verdict, others: Sequence[Verdict] = ()) -> KeptCase:
    """others are verdicts on the same case with other inputs, by which the spread of its metrics is measured."""
    if verdict.verdict == "skip":
        return KeptCase(id, signature, "skip")
    times = (each.time for each in (verdict, *others))
    medians = [time.median_us for time in times if time is not None and time.compares and time.median_us is not None]
    outputs = _outputs(verdict)
    spread = None
    if others:
        runs = [{each.name: each for each in _outputs(other)} for other in others]
        found = tuple(spread_of(each, [run[each.name] for run in runs if each.name in run]) for each in outputs)
        spread = found if any(found) else None
    return KeptCase(id, signature, verdict.of_numbers, outputs, spread, KeptTime.of(medians), verdict.relations)


def _outputs(verdict: Verdict) -> tuple[KeptOutput, ...]:
    return tuple(KeptOutput.of(output.name, output.baseline) for output in verdict.outputs if output.baseline)


def spread_of(output: KeptOutput, others: Sequence[KeptOutput]) -> Spread | None:
    """How far the metrics of an output moved with other inputs; None where it has none, or where all runs gave the same
    bits, as on stored inputs, which no seed changes."""
    if output.rmse is None or all(other.crc == output.crc for other in others):
        return None
    rmse = _largest(number(output.rmse), (number(other.rmse) for other in others))
    mean = _largest(number(output.mean_ulp), (number(other.mean_ulp) for other in others))
    return Spread(rmse, mean)


def _largest(own: float, others: Iterable[float]) -> float:
    """How many times as large it becomes, at least once and at most MOST times, rounded up."""
    largest = max((other for other in others if not math.isnan(other)), default=own)
    if own == largest or math.isnan(own):
        return 1.0
    times = largest / own if own else math.inf
    return _LARGEST_SPREAD if times >= _LARGEST_SPREAD else max(1.0, math.ceil(100 * times) / 100)


class Header(msgspec.Struct, frozen=True):
    """The first line: what the run was that wrote it. dumps maps labels to digests, devices are like run.json's."""

    schema: int
    seed: int
    inputs: str
    standard: str
    repeat: int
    versions: dict[str, str]
    devices: tuple[dict[str, str], ...]
    dumps: dict[str, str]
    outputs: tuple[str, ...] = _COLUMNS
    spread: tuple[str, ...] = _SPREAD_COLUMNS

    @classmethod
    def of(cls, run: Mapping[str, Any], workers: int) -> Header:
        """The header of a run as run.json has it, in so many processes."""
        settings = run["settings"]
        versions = {name: run["versions"][name] for name in ("pytest-probe", "numpy")}
        dumps = {dump["label"]: dump["digest"] for dump in run["dumps"]}
        devices: list[dict[str, str]] = []
        for device in run["devices"]:
            # The facts that may change numbers: not the number of one among several alike devices, and that of threads
            # on a CPU only.
            environment = dict(device)
            if "hardware" in environment:
                environment["device"] = environment["device"].partition(":")[0]
            threads = environment.pop("threads", "")
            if threads and environment["device"] == "cpu":
                environment["threads"] = str(max(1, int(threads) // workers))
            if environment not in devices:
                devices.append(environment)
        return cls(
            SCHEMA,
            settings["seed"],
            settings["inputs"],
            settings["standard"],
            settings["repeat"],
            versions,
            tuple(devices),
            dict(sorted(dumps.items())),
        )

    @property
    def identity(self) -> Identity:
        """What another run must have in common, by the fields of a run's identity."""
        return {"seed": self.seed, "inputs": self.inputs, "standard": self.standard}


class Baseline(Struct, frozen=True):
    """A baseline that was read: its first line, and its cases by id."""

    header: Header
    cases: Mapping[str, KeptCase] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, option: str = OPTION) -> Baseline:
        """Raises SettingsError, which names the option, where there is no file or it is no baseline."""
        ours = f"give a file that {UPDATE} wrote; {{error}}"
        with refused(option, path, "it cannot be read: {error.strerror}", ours):
            try:
                with open_regular(path) as file:
                    return cls.parse(file.read(), str(path))
            except FileNotFoundError:
                wanted = f"there is no such file; a run with {UPDATE} writes it"
                raise SettingsError(option, str(path), wanted) from None

    @classmethod
    def parse(cls, content: bytes, name: str) -> Baseline:
        """The baseline in a file's content. Raises ResultsError, which names the line."""
        lines = [(place, line) for place, line in enumerate(content.splitlines(), 1) if line.strip()]
        if not lines:
            raise ResultsError(name, "it is empty")
        where, first = f"{name}:{lines[0][0]}", lines[0][1].removeprefix(b"\xef\xbb\xbf")
        found = decoded(first, msgspec.json.Decoder(dict[str, Any]), where)
        if "schema" not in found:
            raise ResultsError(where, "its first line has no schema")
        if found["schema"] != SCHEMA:
            raise ResultsError(where, f"it is of schema {found['schema']}, this version reads {SCHEMA}")
        header = decoded(first, json_decoder(Header), where)
        decoder = json_decoder(KeptCase)
        cases: dict[str, KeptCase] = {}
        places: dict[str, int] = {}
        for place, line in lines[1:]:
            case = decoded(line, decoder, f"{name}:{place}")
            if case.id in places:
                other = f"line {places[case.id]} has the id {case.id} as well; remove one"
                raise ResultsError(f"{name}:{place}", other)
            cases[case.id], places[case.id] = case, place
        return cls(header, cases)

    def encoded(self) -> bytes:
        """The file: cases in the order of their ids."""
        lines = [self.header, *(self.cases[id] for id in sorted(self.cases))]
        return b"".join(to_json(line) + b"\n" for line in lines)


class Comparable(Struct, frozen=True):
    """Which bits can be compared: of the same device on the same inputs. others: labels of dumps whose files differ
    from the baseline's."""

    same_device: bool = True
    others: frozenset[str] = frozenset()

    def of(self, label: str) -> bool:
        return self.same_device and label not in self.others


def check(path: Path, before: Header, now: Identity) -> None:
    """Are both of the same inputs, and judged alike? Raises SettingsError."""
    for found in unequal(before.identity, now, "baseline"):
        told = f"it has {found.field} {found.before}, this run has {found.field} {found.now}"
        advice = f"give --probe-{found.field}={found.before}, or remove the file and write a new one"
        raise SettingsError(OPTION, str(path), f"{told}; {advice}")


def comparable(before: Header, now: Header) -> Comparable:
    """The parts of two runs whose bits are equal where nothing changed."""
    same = {_identity(device) for device in before.devices} == {_identity(device) for device in now.devices}
    others = (label for label, digest in now.dumps.items() if before.dumps.get(label, digest) != digest)
    same_inputs = (before.seed, before.inputs) == (now.seed, now.inputs)
    return Comparable(same and same_inputs, frozenset(others))


def _identity(device: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(device.get(name, "") for name in _DEVICE)


def differences(before: Header, now: Header) -> list[str]:
    """The differences of the environment, such as "torch 2.12.0 (now 2.13.0)"."""
    found: list[str] = []

    def compare(old: Mapping[str, str], new: Mapping[str, str], names: Iterable[str]) -> None:
        changed = (name for name in names if old.get(name) != new.get(name))
        found.extend(f"{name} {old.get(name, 'unknown')} (now {new.get(name, 'unknown')})" for name in changed)

    compare(before.versions, now.versions, sorted(before.versions.keys() | now.versions.keys()))
    for old, new in zip_longest(before.devices, now.devices, fillvalue=None):
        if old is None or new is None:
            found.append(f"{len(before.devices)} devices (now {len(now.devices)})")
            break
        if old.get("framework") == new.get("framework"):
            # The framework's version is called by its name.
            old, new = (
                {each["framework"] if key == "version" else key: value for key, value in each.items()}
                for each in (old, new)
            )
        compare(old, new, dict.fromkeys((*old, *new)))
    return list(dict.fromkeys(found))


# Seconds that another update of the same file is waited for.
_LOCK_TIMEOUT = 60.0


class BaselineWriteError(ProbeError):
    """Why a baseline was not written, in one sentence."""


class UpdateCounts(Struct, frozen=True):
    """How many cases of a baseline an update added, rewrote and removed, and how many it has now."""

    added: int
    rewritten: int
    removed: int
    cases: int


def changes(
    before: Baseline | None, header: Header, found: Mapping[str, Compared], vanished: frozenset[str], *, strict: bool
) -> dict[str, KeptCase | None]:
    """Each case that moved, with its new line, None where it is removed. Other cases stay as they are."""
    changed: dict[str, KeptCase | None] = dict.fromkeys(vanished)
    afresh = before is not None and bool(differences(before.header, header))
    same = comparable(before.header, header) if before is not None else None
    for id, compared in found.items():
        old = before.cases.get(id) if before is not None else None
        # Another environment or other inputs give other bits.
        other = afresh or (same is not None and not same.of(PortableId.parse(id).label))
        if old is None or other or _moved(old, compared, strict=strict):
            changed[id] = compared.case
    return changed


def _moved(old: KeptCase, compared: Compared, *, strict: bool) -> bool:
    now = compared.case
    if compared.change not in ("same", "known") or now.verdict != old.verdict:
        return True
    if now.spread is not None and old.spread is None:
        return True
    # Do the times of all runs, which the case has now, lie further apart?
    if now.time is not None and (
        old.time is None or (now.time.low_us, now.time.high_us) != (old.time.low_us, old.time.high_us)
    ):
        return True
    return strict and [each.crc for each in now.outputs] != [each.crc for each in old.outputs]


def check_writable(path: Path) -> None:
    """Raises OSError where the file that an update is to write is read-only, or lies where nothing can be written."""
    if path.exists() and not path.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "it is read-only")
    folder = next(each for each in path.resolve().parents if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, f"nothing can be written in {folder}")


def write(path: Path, header: Header, changed: Mapping[str, KeptCase | None], *, whole: bool) -> UpdateCounts:
    """Bring a baseline up to date; what others wrote to it since it was read stays. whole: the run left no case out.

    Raises BaselineWriteError.
    """
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(path)
        with _locked_content(path) as content:
            before = Baseline.parse(content, str(path)) if content else None
            after = _after(before, header, changed, whole)
            encoded = after.encoded()
            if encoded != content:
                with replacing(path) as temporary:
                    temporary.write_bytes(encoded)
                    shutil.copymode(path, temporary)
    except OSError as error:
        raise BaselineWriteError(error.strerror or str(error)) from None
    except ResultsError as error:
        raise BaselineWriteError(f"somebody changed it meanwhile: {error}") from None
    known = before.cases if before is not None else {}
    removed = sum(case is None and id in known for id, case in changed.items())
    rewritten = sum(case is not None and id in known for id, case in changed.items())
    added = sum(case is not None and id not in known for id, case in changed.items())
    return UpdateCounts(added, rewritten, removed, len(after.cases))


def _after(before: Baseline | None, header: Header, changed: Mapping[str, KeptCase | None], whole: bool) -> Baseline:
    if before is None:
        return Baseline(header, {id: case for id, case in changed.items() if case is not None})
    for found in unequal(before.header.identity, header.identity, "baseline"):
        raise BaselineWriteError(f"somebody changed it meanwhile: it has {found.field} {found.before} now")
    other = differences(before.header, header)
    if other and not whole:
        raise BaselineWriteError(
            f"it is of another environment, and this run left cases out: {', '.join(other)}; update all cases at once"
        )
    cases = {**before.cases, **changed}
    # Cases that did not run still belong to the earlier dumps.
    dumps = header.dumps if whole else {**header.dumps, **before.header.dumps}
    repeat = header.repeat if whole else before.header.repeat
    kept = {label: digest for label, digest in before.header.dumps.items() if label not in dumps}
    merged = msgspec.structs.replace(header, dumps=dict(sorted({**kept, **dumps}.items())), repeat=repeat)
    return Baseline(merged, {id: case for id, case in cases.items() if case is not None})


@contextmanager
def _locked_content(path: Path) -> Iterator[bytes]:
    """The content of a file that no other update writes meanwhile; it is made if it is missing."""
    give_up = time.monotonic() + _LOCK_TIMEOUT
    while True:
        with path.open("ab+") as file:
            if lock_or_assume(file) and _is_current(file, path):
                file.seek(0)
                yield file.read()
                return
        if time.monotonic() > give_up:
            raise BaselineWriteError("another run is writing it")
        time.sleep(0.05)


def _is_current(file: BinaryIO, path: Path) -> bool:
    """Is it still the file at this path? An update puts another one there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
