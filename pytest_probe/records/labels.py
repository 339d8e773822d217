"""Portable names for dumps: the same run has the same label on every machine."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_probe.system import archive

# The folders that a capture makes: for a process that trains alone, and for one of several.
_PROCESS = re.compile(r"proc\d+")
_RANK = re.compile(r"rank\d+")
# The same in a name with other words, as "rank0_step1".
_STEP_NUMBER = re.compile(r"(?<![a-z])step_?(\d+)", re.I)
_RANK_NUMBER = re.compile(r"(?<![a-z])rank_?(\d+)", re.I)


def natural_order(path: Path) -> tuple[tuple[int, int, str], ...]:
    """A sort key: step2 comes before step10, and a folder before names that it is a prefix of."""
    pieces = (piece for part in path.parts for piece in (*re.split(r"(\d+)", part), ""))
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)


def step_and_rank(path: Path) -> tuple[str, int] | None:
    """What all ranks of a step have in common, and the number of this one: "step0/rank*/dump.json", 3. None where
    nothing in the path says it."""
    for place in reversed(range(len(path.parts))):
        name = path.parts[place]
        found = _RANK_NUMBER.search(name)
        if found is not None:
            start, end = map(glob.escape, (name[: found.start(1)], name[found.end(1) :]))
            parts = map(glob.escape, path.parts[:place]), map(glob.escape, path.parts[place + 1 :])
            return Path(*parts[0], f"{start}*{end}", *parts[1]).as_posix(), int(found[1])
    return None


def step_number(path: Path) -> int:
    """The last number of a step in a path; 0 without one."""
    found = [number for part in path.parts for number in _STEP_NUMBER.findall(part)]
    return int(found[-1]) if found else 0


def run_of(path: Path) -> str:
    """What the dumps of all steps and ranks of a run have in common."""
    common = (step_and_rank(path) or (path.as_posix(), 0))[0]
    return _STEP_NUMBER.sub("step*", common)


def ranks_beside(path: Path) -> dict[int, Path]:
    """The dumps of all ranks of the same step that lie on the disk, by their numbers."""
    common = step_and_rank(path)
    if common is None:
        return {0: path}
    found = {each: step_and_rank(Path(each)) for each in glob.glob(common[0])}
    others = {rank[1]: Path(each) for each, rank in found.items() if rank is not None and rank[0] == common[0]}
    return dict(sorted({**others, common[1]: path}.items()))


def labels(paths: Sequence[Path]) -> dict[Path, str]:
    """The label of each dump: its shortest path tail that no other has, at least the file name, with "/" between.

    Process numbers, which change from capture to capture, are left out as in `stable`.
    """
    # The names in each folder that these paths lead through.
    given: defaultdict[Path, set[str]] = defaultdict(set)
    for path in {Path(os.path.abspath(each)) for each in paths}:
        for inner in (path, *path.parents):
            given[inner.parent].add(inner.name)
    parts = {}
    for path in paths:
        whole = Path(os.path.abspath(path))
        drive = [whole.drive.rstrip(":")] if whole.drive else []
        parts[path] = (*drive, *stable_path(whole, given).parts[1:])
    pending = dict(parts)
    found: dict[Path, str] = {}
    depth = 0
    # Tails grow by one part until each is unique among all.
    while pending:
        depth += 1
        counts = Counter(tails[-depth:] for tails in set(parts.values()))
        done = [path for path, tails in pending.items() if counts[tails[-depth:]] == 1]
        found.update((path, "/".join(pending.pop(path)[-depth:])) for path in done)
    return {path: found[path] for path in paths}


def stable_path(path: Path, given: Mapping[Path, set[str]] | None = None) -> Path:
    """The path without process numbers, which the next capture has too: a folder `proc1234` becomes `rank0`.

    With other such folders or with ranks in the same folder, they are numbered in their order: `proc0`, `proc1`. given
    are further names in a folder, which may not be on this disk.
    """
    numbered = [each for each in (path, *path.parents) if _PROCESS.fullmatch(each.name)]
    parts = list(path.parts)
    for folder in numbered:
        parts[len(folder.parts) - 1] = _without_number(folder, (given or {}).get(folder.parent, set()))
    return Path(*parts)


def captured_path(path: Path) -> Path:
    """The path on disk that `stable` turns into this one; the path itself without one."""
    found = Path(path.anchor)
    for part in path.parts[len(found.parts) :]:
        found /= part
        if not found.exists() and (part == "rank0" or _PROCESS.fullmatch(part)):
            names = (name for name in _names(found.parent) if _PROCESS.fullmatch(name))
            alike = (found.with_name(name) for name in names)
            found = next((each for each in alike if _without_number(each, set()) == part), found)
    return found


def labelled_path(folder: Path, label: str) -> Path:
    """The file that is called so: by its path from the folder, or by the end of it, where just one there has it."""
    named = captured_path(folder / label)
    if named.exists():
        return named
    below = folder.rglob(Path(label).name) if Path(label).name else ()
    found = [each for each in below if stable_path(each).as_posix().endswith(f"/{label}")]
    return found[0] if len(found) == 1 else named


def _without_number(folder: Path, others: set[str]) -> str:
    names = {folder.name, *others, *_names(folder.parent)}
    processes = sorted((Path(name) for name in names if _PROCESS.fullmatch(name)), key=natural_order)
    alone = len(processes) == 1 and not any(_RANK.fullmatch(name) for name in names)
    return "rank0" if alone else f"proc{processes.index(Path(folder.name))}"


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return archive.list_folder(folder)
