"""`results.jsonl`, one result a line; `run.json`, what the run was; and the comparison of two runs. And where
files lie that are derived from them, as rows."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import Result, number
from pytest_probe.option_types import RESULTS as RESULTS
from pytest_probe.options import JUDGES, OPTIONS, OTHER_DEVICE, OTHER_ENVIRONMENT, PROJECT, SELECTS
from pytest_probe.system import archive
from pytest_probe.system.decoding import json_decoder, to_json
from pytest_probe.system.files import lock_or_assume, open_regular, replacing
from pytest_probe.system.text import printable_line

SCHEMA = 2
RUN = "run.json"
_RESULTS = json_decoder(Result)
# The kind of an error in the place of a result that cannot be written, and the fields that both have.
UNWRITTEN, _NAMES = "result not written", ("id", "api", "direction", "dtype", "device")
# What is kept of a line.
T = TypeVar("T")


class EarlierResults(Protocol):
    """The results that a run goes on behind."""

    @property
    def finished(self) -> bool:
        """Has every item its result?"""

    def without_reruns(self, file: IO[bytes]) -> IO[bytes]:
        """The locked results file, without the lines of cases that run again. Raises OSError and SettingsError."""


class ResultsWriter:
    """`results.jsonl`, one line an item and written with it, and `run.json`.

    Locked until it is closed. Where the disk takes no more, trouble says so in one sentence, whole lines stay, and what
    follows is dropped. earlier: go on behind these results. Raises SettingsError where the folder holds results
    already, is locked by another run, or cannot be written to.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], earlier: EarlierResults | None = None) -> None:
        self.folder = folder
        self.trouble = ""
        self._run = {"schema": SCHEMA, **run}
        path = folder / RESULTS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab", buffering=0)
            if not lock_or_assume(self._file):
                raise SettingsError(
                    "--probe-out", str(folder), "another run writes there; give another folder, or wait"
                )
            if earlier is not None:
                self._file = earlier.without_reruns(self._file)
            elif path.stat().st_size:
                advice = "give a new folder, or go on with --probe-resume"
                raise SettingsError("--probe-out", str(folder), f"it holds {RESULTS} of another run; {advice}")
            self._kept = path.stat().st_size
            if earlier is None or not earlier.finished:
                self._write_run()
        except SettingsError:
            self._file.close()
            raise
        except OSError as error:
            raise SettingsError("--probe-out", str(folder), f"it cannot be written to: {error.strerror}") from None

    def write(self, lines: str) -> None:
        """Append lines of results as they are."""
        if self.trouble:
            return
        left = memoryview(lines.encode())
        try:
            while left:
                left = left[self._file.write(left) :]
            self._kept = self._file.tell()
        except OSError as error:
            self.trouble = (
                f"{self.folder / RESULTS} cannot be written ({error.strerror}): it ends with the last whole line"
            )
            self._file.truncate(self._kept)

    @property
    def size(self) -> int:
        """Bytes of results."""
        return self._kept

    def add(self, **more: Any) -> None:
        """Add what was not known before to `run.json`."""
        self._run |= more
        with suppress(OSError):
            self._write_run()

    def release(self) -> None:
        """Write nothing more, and let other runs write."""
        self._file.close()

    def close(self, **summary: Any) -> None:
        """End the run; summary is added to `run.json`."""
        self.release()
        self._run |= summary
        try:
            self._write_run()
        except OSError as error:
            lost = f"{self.folder / RUN} cannot be written ({error.strerror}): it does not tell how the run ended"
            self.trouble = self.trouble or lost

    def _write_run(self) -> None:
        with replacing(self.folder / RUN) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._run), indent=2) + b"\n")


def digest(path: Path) -> str:
    """SHA-256 of a file as it is unpacked, as "sha256:..."."""
    with archive.open_file(path) as file:
        state = hashlib.sha256()
        while block := file.read(1 << 20):
            state.update(block)
    return f"sha256:{state.hexdigest()}"


def lines_of(results: Iterable[Result]) -> str:
    """Results as lines of `results.jsonl`."""
    return "".join(written(result)[0] for result in results)


def written(result: Result) -> tuple[str, Result]:
    """The line of a result, and the result that it holds: an error where this one cannot be written and read."""
    try:
        line = to_json(result)
        _RESULTS.decode(line)
    except (TypeError, ValueError, RecursionError) as error:
        id, api, direction, dtype, device = (printable_line(str(getattr(result, name))) for name in _NAMES)
        reason = f"the result cannot be written: {printable_line(str(error))}"
        result = Result(id, api, direction, dtype, device, "error", "", reason, UNWRITTEN, 0.0, (), ())
        line = to_json(result)
    return f"{line.decode()}\n", result


def results_in(lines: str) -> list[Result]:
    """The results behind what `lines_of` made."""
    return _RESULTS.decode_lines(lines)


def read_results(path: Path) -> Iterator[Result]:
    """The results of a run, one an item. Raises as read_lines does."""
    return read_lines(path, Result)


def read_lines(path: Path, kind: type[T], size: float = math.inf) -> Iterator[T]:
    """What a file of results has in its first bytes, as far as the kind asks for it; a line that was cut off at the end
    is no result.

    Raises OSError, and ResultsError where a line is no result of ours.
    """
    decoder = json_decoder(kind)
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            size -= len(line)
            if size < 0 or not line.endswith(b"\n"):
                return
            yield decoded(line, decoder, f"{path}:{number}")


def decoded(content: bytes, decoder: msgspec.json.Decoder[T], where: str) -> T:
    """What a file, or a line of one, holds. Raises ResultsError, which names the place."""
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(where, str(error)) from None


@contextmanager
def refused(option: str, path: object, unreadable: str, damaged: str = "{error}") -> Iterator[None]:
    """An OSError or ResultsError that is raised inside becomes a SettingsError of this option. {error} stands for it in
    the sentence that says what is wrong: in unreadable for an OSError, in damaged for a ResultsError."""
    try:
        yield
    except OSError as error:
        raise SettingsError(option, str(path), unreadable.format(error=error)) from error
    except ResultsError as error:
        raise SettingsError(option, str(path), damaged.format(error=error)) from error


# What a run is: run.json's `identity`, and the one function that compares two of them.
#
# An identity is plain data: a value a field, or a mapping of such fields. Each option is a field unless its row in the
# table of options says why it changes no verdict; the row says where it may differ, too. A baseline has in its header
# only what must be equal. A cache compares no runs: the key of each reference has all that it depends on, so it has no
# use here.


Identity: TypeAlias = Mapping[str, Any]
Use: TypeAlias = Literal["resume", "merge", "benchmark", "baseline"]
_NONE = "none"

_PYTEST = ("-k", "-m", "--deselect", "--lf", "--sw", "--ignore", "paths")
# What may differ between two runs that are used together, by the use, and why. What is not here may not.
MAY_DIFFER: Mapping[str, Mapping[str, str]] = {
    **{option.by or option.name: option.may_differ for option in OPTIONS},
    **dict.fromkeys(_PYTEST, SELECTS),
    **dict.fromkeys(("standards", "relations of the project", "pytest_probe_verdict"), JUDGES),
    **dict.fromkeys(
        ("calls", "compilers", "devices of the user", "mappings", "namespaces of the project"), OTHER_DEVICE | PROJECT
    ),
    **dict.fromkeys(("references", "readers", "quantizers", "pytest_probe_inputs"), PROJECT),
    "versions": OTHER_DEVICE | OTHER_ENVIRONMENT,
}


class _Difference(Struct, frozen=True):
    field: str
    before: str
    now: str


def differences(before: Identity, now: Identity, use: Use) -> Iterator[_Difference]:
    """Each field that must be equal for this use and is not. Dumps that only one side of a benchmark has are no
    difference, since their cases are listed as cases of one side."""
    for field in dict.fromkeys((*before, *now)):
        if use not in MAY_DIFFER.get(field, {}):
            common = use == "benchmark" and field == "dumps"
            yield from _differing(field, before.get(field), now.get(field), common=common)


def _differing(field: str, before: Any, now: Any, *, common: bool = False) -> Iterator[_Difference]:
    if before == now:
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*before, *now)):
            if not common or (name in before and name in now):
                yield from _differing(
                    name if field == "devices" else f"{field} {name}", before.get(name), now.get(name)
                )
    else:
        yield _Difference(field, _text(before), _text(now))


def _text(value: object) -> str:
    if value is None or value == []:
        return _NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or _NONE
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check(option: str, folder: str, before: Identity, now: Identity, use: Use, advice: str) -> None:
    """Raises SettingsError, which names the first field that differs and both its values."""
    for found in differences(before, now, use):
        words = f"its run has {found.field} {found.before}, this run has {found.now}"
        raise SettingsError(option, folder, f"{words}; {advice}")


# The folder of --probe-save.
SAVED = "saved"


def write_rows(path: Path, rows: Iterable[Sequence[object]], encoding: str = "utf-8-sig") -> Path:
    """A CSV file of these rows, in place once it is whole. Raises OSError."""
    with replacing(path) as temporary:
        append_rows(temporary, rows, encoding)
    return path


def append_rows(path: Path, rows: Iterable[Sequence[object]], encoding: str = "utf-8-sig") -> None:
    """Write these rows behind those of a CSV file, which is made where it is not there. A text that a spreadsheet would
    compute begins with an apostrophe, by which spreadsheets mark texts. Raises OSError."""
    with path.open("a", encoding=encoding, newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(map(_inert, rows))


# What begins a cell that a spreadsheet computes.
_COMPUTED = frozenset("=+-@")


def _inert(row: Sequence[object]) -> list[str]:
    cells = [*map(str, row)]
    line = "".join(cells)
    if not (line.isascii() and line.isprintable()):
        cells = [*map(printable_line, cells)]
    return [f"'{cell}" if cell[:1] in _COMPUTED and math.isnan(number(cell)) else cell for cell in cells]


def folder_of(folder: Path, group: str) -> Path:
    """The folder below another one for the files of a group, as "gpt/dump.json"."""
    return folder.joinpath(*(_safe(part, "._-").strip(".") or "_" for part in group.split("/")))


def saved_path(out: Path, label: str, name: str) -> Path:
    """The file of a case's tensors in a --probe-out. The name was read from a dump: no part of it may lead
    elsewhere."""
    return out / SAVED / label / f"{_safe(name, '._-[]')}.pt"


def _safe(text: str, allowed: str) -> str:
    return "".join(letter if letter.isalnum() or letter in allowed else "_" for letter in text)
