"""A baseline that takes in what a run found: only what moved is rewritten."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from pytest_probe.errors import ProbeError, ResultsError
from pytest_probe.features.gate.baseline import Baseline, Header, comparable, differences
from pytest_probe.model.baseline import Compared, KeptCase
from pytest_probe.model.result import PortableId
from pytest_probe.reports.results_file import differences as unequal
from pytest_probe.system.files import lock_or_assume, replacing

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
