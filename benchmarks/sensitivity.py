"""How good the forecast of `detects` is, and what it costs: `python benchmarks/sensitivity.py [DTYPE ...]`.

Of each passing floating output of cases/gpt and of msprobe's dump of a CNN (tests/data), on the CPU and under another
device's name, the smallest errors that the judge finds are searched for by planting them: of the whole output, of one
element, of one row. Printed is how often what `detects` states is within a factor of 2 of them, and the share of an
item's time that stating it takes. DTYPE: recorded, bfloat16, float16; all three without one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import pytest  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from pytest_probe.check import Case, Checker, RunRequest  # noqa: E402
from pytest_probe.check.comparisons import comparisons  # noqa: E402
from pytest_probe.check.judging import judge_with_modes  # noqa: E402
from pytest_probe.features.sensitivity import Output, off_in_element, off_in_row, times  # noqa: E402
from pytest_probe.model.comparison import Comparison  # noqa: E402
from pytest_probe.numerics.dtypes import AnyArray, float_format  # noqa: E402
from pytest_probe.records import read_dump  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from pytest_probe.standards.noise import standard  # noqa: E402
from pytest_probe.standards.noise.detects import detects_of  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

DTYPES = ("recorded", "bfloat16", "float16")
DEVICES = ("cpu", "other")
# Steps of the search: a quarter of a power of two.
STEP = 4
FACTOR = 2.0


def smallest(finds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest size of an error that is found, from low on; inf where none below high is."""
    if finds(low):
        return low
    if not finds(high):
        return float("inf")
    steps = 0
    while low * 2.0 ** (steps / STEP) < high:
        steps += 1
    below, above = 0, steps
    while above - below > 1:
        middle = (below + above) // 2
        if finds(low * 2.0 ** (middle / STEP)):
            above = middle
        else:
            below = middle
    return low * 2.0 ** (above / STEP)


def shown(judge: Callable[[AnyArray | None], bool], comparison: Comparison) -> Mapping[str, Callable[[], float]]:
    """Finds the smallest errors that the judge finds, by what `detects` calls them."""
    output = Output(comparison, None, None)
    roundoff = float_format(comparison.precision).roundoff
    return {
        "scale": lambda: smallest(lambda size: judge(times(1 + size)(output)), roundoff, 16.0),
        "element": lambda: smallest(lambda size: judge(off_in_element(output, size)), 1.0, 2.0**24),
        "row": lambda: smallest(lambda size: judge(off_in_row(output, size)), 1.0, 2.0**24),
    }


def of_case(checker: Checker, case: Case, checked: Any) -> Iterator[tuple[str, float, float]]:
    """What was stated and what is shown, of each output, by name."""
    stated = {output.name: output.detects for output in checked.verdict.outputs}
    judge = checker.registry.standards["auto"]
    with checker.making_calls(case) as engines:
        for found in comparisons(checked.worst, case.direction, 0, by_class=True):
            if not isinstance(found, Comparison) or stated.get(found.name) is None or not found.expected.any():
                continue

            def finds(values: AnyArray | None, comparison: Comparison = found) -> bool:
                spoiled = replace(comparison, actual=values)
                return judge_with_modes(judge, spoiled, lambda: engines.modes, depth=lambda: "none").verdict == "error"

            for name, size in shown(finds, found).items():
                wanted = getattr(stated[found.name], name)
                if wanted is not None or name == "scale":
                    yield name, math.inf if wanted is None else wanted, size()


def main() -> None:
    dumps = [ROOT / "cases/gpt/dump.json"]
    with tempfile.TemporaryDirectory() as folder:
        dumps.append(Path(folder) / "cnn.json")
        dumps[1].write_bytes(gzip.decompress((ROOT / "tests/data/msprobe-26.2.0/cnn/dump.json.gz").read_bytes()))
        print("| device | dtype | dump | cases | scale | element | row |\n|---|---|---|---|---|---|---|")
        for device in DEVICES:
            for dtype in sys.argv[1:] or DTYPES:
                for path in dumps:
                    print(
                        f"| {device} | {dtype} | {row(path, device, None if dtype == 'recorded' else dtype)} |",
                        flush=True,
                    )
        print(cost(dumps[0]))


def agree(stated: float, size: float) -> bool:
    """Is one within a factor of 2 of the other? That no scale error is found is true of one that takes 100 %, too."""
    return size > 1 / FACTOR if stated == math.inf else 1 / FACTOR <= stated / size <= FACTOR


def row(path: Path, device: str, dtype: str | None) -> str:
    registry = Registry(devices={"other": lambda name: Emulated("other")})
    checker, dump, cases = Checker(RunRequest(device=device), registry), read_dump(path), 0
    near: dict[str, list[bool]] = {"scale": [], "element": [], "row": []}
    for record in dump.records:
        checked = None
        for direction in record.directions:
            case = Case(dump, record, direction, dtype)
            checked = checker.run(case, checked)
            if checked.verdict.verdict == "pass":
                cases += 1
                for name, stated, size in of_case(checker, case, checked):
                    near[name].append(agree(stated, size))
    shares = (f"{100 * statistics.mean(found):.1f} % of {len(found)}" for found in near.values())
    return f"{path.parent.name if path.name == 'dump.json' else path.stem} | {cases} | {' | '.join(shares)}"


class Timed:
    """Measures CPU time: of stating what a pass detects, and of all items of a run of pytest."""

    def __init__(self) -> None:
        self.stating = self.items = 0.0

    def detects(self, *given: Any) -> Any:
        start = time.process_time_ns()
        found = detects_of(*given)
        self.stating += (time.process_time_ns() - start) / 1e9
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.items = time.process_time() - start


def measured(path: Path, *options: str) -> Timed:
    """A run of pytest with the dump, in this process."""
    timed = Timed()
    given = ["-q", "-p", "no:cacheprovider", "--probe-device=cpu", f"--probe-dump={path}", *options]
    with mock.patch.object(standard, "detects_of", timed.detects), contextlib.redirect_stdout(io.StringIO()):
        pytest.main(given, plugins=[timed])
    return timed


def cost(path: Path) -> str:
    """The CPU time of stating beside that of the items of a dump, the least of five runs behind one that imports; and
    that of items that are spoiled."""
    runs = [measured(path) for _ in range(6)][1:]
    least = min(runs, key=lambda run: run.stating / run.items)
    plain, spoiled = min(run.items for run in runs), measured(path, "--probe-sensitivity").items
    numbers = f"{1e3 * least.stating:.1f} ms of {1e3 * least.items:.0f} ms"
    share = f"{100 * least.stating / least.items:.2f} %"
    return (
        f"\nstating takes {numbers} of CPU that the items of {path.parent.name} take: {share}\n"
        f"with --probe-sensitivity they take {spoiled:.1f} s, {spoiled / plain:.0f} times as much"
    )


if __name__ == "__main__":
    main()
