"""How large the page about a run is, and how fast: `python benchmarks/report_size.py [CASES]` (20,000 by default).

1. The size of the page of 2,000 cases and of CASES, of which 2 % fail, each with plots of real numbers; and what the
   longest row takes of a case that is not shown in detail.
2. CPU milliseconds that a case takes without and with the data of its plots, by the number of its elements: the median
   of several. A run makes them for errors, warnings and about a thousand of 20,000 others.
3. CPU seconds and peak memory of the process that writes it, `pytest-probe report`, with all its imports.
4. With Chromium and its driver installed: milliseconds on one core from opening the page until its first rows are
   painted, and from a letter in the search until the rows that are found are; the median of several.
5. The size of a page of 10,000 pairs of two sides and what of it tells of the other side; and with Chromium,
   milliseconds until the view of both sides is painted, a search in it and the step to the next own error.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.other_runs import RUNS
from pytest_probe.model.result import Result
from pytest_probe.reports.selected import SelectedItem, selected_in, write_items
from tests.support.browser import Opened, chromium, missing
from tests.support.html_page import embedded
from tests.support.made_results import made_pairs, made_results, write_run

SMALL, PAIRS, ROUNDS = 2_000, 10_000, 5
# Runs before the page's own script: notes when rows have come, and when the browser has painted them.
WATCH = """
const painted = () => setTimeout(() => { window.painted = performance.now(); });
const look = () => {
  const come = document.querySelector("#app tbody tr[data-place]");
  requestAnimationFrame(come ? painted : look);
};
requestAnimationFrame(look);
"""
FILTER = """
const [words, id, done] = arguments;
const search = document.getElementById(id);
const began = performance.now();
search.value = words;
search.dispatchEvent(new Event("input", {bubbles: true}));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""
# What a view, or a key, takes until the browser has painted.
VIEW = """
const done = arguments[0];
const button = [...document.querySelectorAll("#views button")].find((one) => one.textContent === "A against B");
const began = performance.now();
button.click();
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""
NEXT = """
const done = arguments[0];
const began = performance.now();
document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "n", bubbles: true}));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""


def written(folder: Path, results: Sequence[Result]) -> tuple[Path, float, float]:
    """The page of these cases, with CPU seconds and MB of the process that wrote it."""
    write_items(folder, [SelectedItem(result.id, place, result.id) for place, result in enumerate(results)])
    write_run(folder, iter(results), selected=msgspec.to_builtins(selected_in(folder)))
    page = folder / "page.html"
    command = [str(Path(sys.executable).with_name("pytest-probe")), "report", str(folder), "-o", str(page)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return page, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def longest_row(count: int) -> int:
    """Bytes of the longest row of a case that passes, with its line over the runs of a history."""
    found = Collected()
    for result in made_results(count, details=False):
        found.add(result)
    return max(map(len, found.rows)) + len(b',\n""') + 1 + RUNS


def opened(page: Path) -> Iterator[tuple[float, float]]:
    """Milliseconds until the first rows of the page, and of a filter, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with chromium() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        driver.set_script_timeout(60)
        for _ in range(ROUNDS):
            shown = Opened(driver, page)
            while not shown.run("return window.painted || 0"):
                pass
            first = float(shown.run("return window.painted"))
            yield first, filtered(shown, "search")


def filtered(page: Opened, search: str) -> float:
    """Milliseconds of the slowest of several searches."""
    return max(float(page.driver.execute_async_script(FILTER, words, search)) for words in ("softmax", "e", ""))


def pairs_opened(page: Path) -> Iterator[tuple[float, float, float]]:
    """Milliseconds until the view of two sides is painted, a search in it, and a step to the next own error."""
    with chromium() as driver:
        driver.set_script_timeout(60)
        for _ in range(ROUNDS):
            shown = Opened(driver, page)
            view = float(driver.execute_async_script(VIEW))
            step = max(float(driver.execute_async_script(NEXT)) for _ in range(5))
            yield view, filtered(shown, "pair-search"), step


def judged(elements: int) -> tuple[float, float, float]:
    """CPU milliseconds of a case of exp: judged without plots, judged with the counts that plots need, and the plots.

    Imported here: a process that starts another hands its own peak of memory on.
    """
    import torch

    from pytest_probe.check import Checker, RunRequest
    from pytest_probe.features.html.plugin import arguments_of, plots_of
    from pytest_probe.registry import Registry

    values = torch.randn(elements // 64, 64)
    times: list[list[float]] = [[], [], []]
    for _ in range(ROUNDS):
        for place, plotted in enumerate((False, True)):
            checker = Checker(RunRequest("cpu", plotted=plotted), Registry.default())
            (case,) = checker.pairs(torch.exp, torch.exp, (values,))
            checker.run(case)
            began = time.process_time()
            checked = checker.run(case)
            times[place].append(time.process_time() - began)
        began = time.process_time()
        plots_of(checked, checked.verdict)
        arguments_of(checked)
        times[2].append(time.process_time() - began)
    without, counted, made = (1e3 * statistics.median(each) for each in times)
    return without, counted, made


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as name:
        for number in (SMALL, count):
            page, seconds, peak = written(Path(name, str(number)), [*made_results(number, number // 50)])
            size = page.stat().st_size / 1e6
            print(f"{number:,} cases, {number // 50:,} fail: {size:.2f} MB, {seconds:.1f} s of CPU, {peak:.0f} MB peak")
        pairs = [*made_pairs(PAIRS, range(PAIRS // 2, PAIRS, PAIRS // 20))]
        both, seconds, peak = written(Path(name, "pairs"), pairs)
        beside = len(msgspec.json.encode(embedded(both, "against"))) / 1e6
        sizes = f"{both.stat().st_size / 1e6:.2f} MB, {beside:.2f} of the other side"
        print(f"{PAIRS:,} pairs: {sizes}, {seconds:.1f} s of CPU, {peak:.0f} MB peak")
        for elements in (1 << 12, 1 << 20, 1 << 23):
            without, counted, made = judged(elements)
            told = f"{without:.1f} ms without plots, {counted:.1f} ms with counts, {made:.1f} ms for the plots"
            print(f"a case of {elements:,} elements: {told}")
        print(f"the longest row of a case that passes: {longest_row(SMALL)} bytes")
        if missing():
            print(f"not opened: {missing()}")
            return
        first, rows = (statistics.median(times) for times in zip(*opened(page), strict=True))
        print(f"first rows after {first:.0f} ms, a filter after {rows:.0f} ms, on one core")
        view, search, step = (statistics.median(times) for times in zip(*pairs_opened(both), strict=True))
        print(f"two sides after {view:.0f} ms, a search after {search:.0f} ms, the next error after {step:.0f} ms")


if __name__ == "__main__":
    main()
