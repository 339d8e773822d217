"""`pytest-probe merge`: the shards of a run become one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_probe.export.files import write_files
from pytest_probe.features.shard.merge import Shard, check, fails, items_of, joined, run_of, write, write_junit
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.results_file import refused
from pytest_probe.reports.tally import Tally
from pytest_probe.reports.terminal import WIDTH, group_lines, summary_lines
from pytest_probe.system.text import printable

# The exit status of a run in which something failed, as of pytest.
_FAILED = 1


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "merge",
        help="join the results of the shards of a run",
        description="Join folders of --probe-out, one for each shard of --probe-shard: results.jsonl, run.json and the "
        "CSV files are those of one run without shards. Tensors of --probe-save stay where they are; summary.md and "
        "compare_result_*.csv are not written, since they hold what a run reads of the dumps.",
        epilog="exit status: 0, 1 where a case failed or a shard's run did, 2 where an argument cannot be used",
    )
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="the folder of one shard")
    parser.add_argument("-o", "--out", metavar="DIR", type=Path, required=True, help="folder for the results of all")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write one junit file of all cases")
    parser.add_argument("--partial", action="store_true", help="some shards may be missing, or have ended early")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    shards = sorted(map(Shard.at, arguments.folders), key=lambda shard: shard.number)
    check(shards, partial=arguments.partial)
    found = joined(shards)
    results = [result for _, result in found]
    whole = run_of(shards, results)
    write(arguments.out, whole, items_of(shards), results)
    strict = bool(whole["settings"]["strict"])
    tally, answers = Tally(), Answers()
    for result in results:
        tally.add(result)
        answers.add(result)
    with refused("--out", arguments.out, "it cannot be written to: {error.strerror}"):
        write_files(arguments.out, whole["settings"])
    if arguments.junit is not None:
        with refused("--junit", arguments.junit, "it cannot be written: {error.strerror}"):
            write_junit(arguments.junit, ((item.node, result) for item, result in found), tally.groups, strict=strict)
    lines = [*summary_lines(tally, not_run=whole["not_run"]), *answers.lines(WIDTH), *group_lines(tally)]
    if any(result.against is not None and result.against.rows for result in results):
        lines.append("compare_result_*.csv are not written: they hold stacks, and merge reads no dump")
    print(printable("\n".join(lines)))
    return _FAILED if whole["exit_status"] or any(fails(result, strict=strict) for result in results) else 0
