"""How good the verdicts are: the share of wrong outputs found and of healthy outputs flagged, as a Markdown table.

    python benchmarks/verdict_quality.py [--framework torch|paddle] [--source dumps|opinfo|calls]
        [--device-kind torch|refs|tf32|...] [--alarms]

Every output of every call is judged by every standard, and then every mutation of it (benchmarks/mutations.py).
Sources: the dumps of tests/data (or those below --dumps), cast to each dtype; torch's own samples of its operators,
in-place variants included; calls drawn at random. Devices: torch's CPU kernels, torch._refs, and emulated modes, whose
outputs count where they are not the CPU's, and are healthy where the mode is allowed; `refused` says how many standards
find where it is not. Options that are given more than once add up; without one all are taken,
but dumps on torch only, and modes with drawn calls only. Of Paddle there are drawn calls: on its CPU, on the same under
another name, in 16 bit that is emulated, and with operators that compute something else.

Not counted are outputs with no one right answer for standards that know no classes, and mutations that leave a right
one (benchmarks/mutations.py says which). A mutation whose verdict is a skip counts as missed. What is left out is
counted under the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.quality import calls, devices, dumps, opinfo  # noqa: E402
from benchmarks.quality.kinds import Kind  # noqa: E402
from benchmarks.quality.samples import Source, Wish  # noqa: E402
from benchmarks.quality.scoring import Score, Scoring, scored, totals  # noqa: E402
from pytest_probe.records import find_dumps  # noqa: E402
from pytest_probe.standards import STANDARDS  # noqa: E402
from tests.support.dumps import DUMPS, unpack  # noqa: E402

SOURCES = ("dumps", "opinfo", "calls")
# Which of torch's devices are tried on what, where none is named: modes concern few operators.
DEVICES = {"dumps": ("torch",), "opinfo": ("torch", "refs"), "calls": tuple(devices.KINDS)}
# Samples of each operator or call, where none are asked for.
SAMPLES = {"torch": 4, "paddle": 10}
HEAD = "| source | device | dtype | standard | healthy | flagged | warned | mutated | found | missed most | refused |"


def kinds_of(framework: str) -> Mapping[str, Kind]:
    """The devices of a framework, which is imported where it is asked for."""
    if framework == "torch":
        return devices.KINDS
    from benchmarks.quality import paddle_devices

    return paddle_devices.KINDS


def sources(folder: Path, given: Path | None, framework: str = "torch") -> dict[str, Source]:
    if framework == "paddle":
        from benchmarks.quality import paddle_calls

        return {"calls": paddle_calls.samples}
    paths = find_dumps(given) if given else [unpack(name, folder) for name in DUMPS]
    return {"dumps": partial(dumps.samples, paths), "opinfo": opinfo.samples, "calls": calls.samples}


def rows(names: tuple[str, str, str], scoring: Scoring) -> Iterator[str]:
    for standard, score in totals(scoring.scores):
        yield f"| {' | '.join(names)} | {standard} | {' | '.join(cells(score))} |"


def cells(score: Score) -> Iterator[str]:
    yield f"{score.healthy:,}"
    yield f"{len(score.flagged):,}"
    yield f"{len(score.warned):,}"
    yield f"{score.mutated:,}"
    yield share(score.mutated - len(score.missed), score.mutated)
    yield ", ".join(f"{label} {count}" for label, count in score.kinds.most_common(2))
    yield f"{share(score.refused - len(score.passed), score.refused)} of {score.refused:,}" if score.refused else ""


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def wrong(names: tuple[str, str, str], scoring: Scoring, options: argparse.Namespace) -> Iterator[str]:
    """The outputs that auto got wrong, as a list."""
    score = scoring.scores["auto"]
    if options.alarms:
        listed = {"flagged": score.flagged, "warned": score.warned}
        again = f"--framework {options.framework} --source {names[0]} --device-kind '{names[1]}' --dtypes {names[2]}"
        again += f" --samples {options.samples}"
        yield from (f"- {words}, {again}: {item}" for words, items in listed.items() for item in items)
    if options.missed:
        listed = {"missed": score.missed, "passed": score.passed}
        yield from (f"- {words}, {' '.join(names)}: {item}" for words, items in listed.items() for item in items)


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{HEAD}\n{'|---' * HEAD.count(' |')}|", flush=True)
    below: list[str] = []
    left_out: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        known = sources(Path(folder), options.dumps, options.framework)
        for source, kind, dtype in plan(options):
            wish = Wish(dtype, options.samples, options.api, kind.tiny)
            names = (source, kind.name, dtype)
            scoring = scored(kind, known[source](wish), options.standard or STANDARDS)
            print("".join(f"{line}\n" for line in rows(names, scoring)), end="", flush=True)
            below += wrong(names, scoring, options)
            left_out.update({f"{source}: {reason}": count for reason, count in scoring.left_out.items()})
    print("\nLeft out:\n")
    print("\n".join(f"- {reason}: {count:,}" for reason, count in sorted(left_out.items())))
    print("\n" + "\n".join(below) if below else "", end="")


def plan(options: argparse.Namespace) -> Iterator[tuple[str, Kind, str]]:
    kinds = kinds_of(options.framework)
    for source in options.source or (SOURCES if options.framework == "torch" else ("calls",)):
        for name in options.device_kind or kinds:
            for dtype in options.dtypes.split(","):
                beyond = not options.device_kind and name in devices.KINDS and name not in DEVICES[source]
                if dtype in kinds[name].dtypes and not beyond:
                    yield source, kinds[name], dtype


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=SAMPLES, default="torch")
    parser.add_argument("--source", action="append", choices=SOURCES, help="repeatable; default: all")
    parser.add_argument("--device-kind", action="append", help="repeatable; default: all")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--standard", action="append", choices=STANDARDS, help="repeatable; default: all")
    parser.add_argument("--dumps", type=Path, help="a folder of dumps, instead of those of tests/data")
    parser.add_argument("--samples", type=int, help="samples of each operator or call (default: 4, of Paddle 10)")
    parser.add_argument("--api", default="*", help="a pattern that APIs' names match, as 'Functional.*'")
    parser.add_argument("--alarms", action="store_true", help="list every healthy output that auto flags or warns of")
    parser.add_argument("--missed", action="store_true", help="list every wrong output that auto does not find")
    options = parser.parse_args()
    options.samples = options.samples or SAMPLES[options.framework]
    unknown = set(options.device_kind or ()).difference(kinds_of(options.framework))
    if unknown or (options.framework == "paddle" and set(options.source or ()) - {"calls"}):
        known = ", ".join(kinds_of(options.framework))
        parser.error(f"{options.framework} has the devices {known}; of paddle there are drawn calls only")
    return options


if __name__ == "__main__":
    main()
