"""`pytest-probe baseline diff`: two baselines side by side, in words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_probe.errors import SettingsError
from pytest_probe.features.gate.baseline import Baseline, Header, comparable, differences
from pytest_probe.features.gate.gate import COUNTED, Gate
from pytest_probe.model.baseline import Compared
from pytest_probe.reports.results_file import differences as unequal
from pytest_probe.system.text import printable

_WORSE = 1


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "baseline", help="look at baselines of --probe-baseline", description="Look at baselines of --probe-baseline."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    diff = actions.add_parser(
        "diff",
        help="say what is better and what is worse in another baseline",
        description="Compare each case of baseline B with the same case of baseline A, as a run with A would.",
        epilog="exit status: 0, 1 where B is worse, 2 where a file cannot be used",
    )
    diff.add_argument("before", metavar="A", type=Path, help="the older baseline")
    diff.add_argument("after", metavar="B", type=Path, help="the newer baseline")
    diff.set_defaults(run=run)
    check = actions.add_parser(
        "check",
        help="say which baselines cannot be read, as after a merge",
        description="Read each file as a run with --probe-baseline would.",
        epilog="exit status: 0, 1 where a file cannot be read",
    )
    check.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a baseline")
    check.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
    """The exit status."""
    found = [*filter(None, map(_trouble, arguments.files))]
    for trouble in found:
        print(printable(trouble))
    return int(bool(found))


def _trouble(path: Path) -> str:
    """Why a baseline cannot be read; "" where it can."""
    try:
        Baseline.read(path, "FILE")
    except SettingsError as error:
        return str(error)
    return ""


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    before, after = Baseline.read(arguments.before, "A"), Baseline.read(arguments.after, "B")
    gate = Gate(before, comparable(before.header, after.header))
    # Each case of the newer one is compared with the same case of the older one.
    compared = [gate.judge(case).compared for _, case in sorted(after.cases.items())]
    vanished = sorted(before.cases.keys() - after.cases.keys())
    print(printable("\n".join(_lines(before.header, after.header, compared, vanished))))
    return _WORSE if any(each.change == "worse" for each in compared) else 0


def _lines(old: Header, new: Header, compared: Sequence[Compared], vanished: Sequence[str]) -> Iterator[str]:
    """The environments, the counts, and every case that is not as before."""
    for found in unequal(old.identity, new.identity, "baseline"):
        yield f"{found.field}: {found.before} in A, {found.now} in B: bits are not compared"
    for text in differences(old, new):
        yield f"environment: {text}"
    counts = [f"{len(compared):,} cases" if len(compared) != 1 else "1 case"]
    for change, (words, _) in COUNTED.items():
        number = sum(each.change == change for each in compared)
        counts += [f"{number:,} {words}"] if number else []
    yield ", ".join([*counts, f"{len(vanished):,} only in A"] if vanished else counts)
    bits, same = sum(each.bits for each in compared), sum(each.same_bits for each in compared)
    if bits:
        yield f"bits: {same:,} of {bits:,} outputs as before"
    for change, (words, _) in COUNTED.items():
        if change != "same":
            yield from _listing(words, [(each.case.id, each.reason) for each in compared if each.change == change])
    yield from _listing("only in A", [(id, "") for id in vanished])


def _listing(title: str, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    if found:
        yield f"{title}:"
    for id, reason in found:
        yield f"  {id}{f': {reason}' if reason else ''}"
