"""What a history costs: `python benchmarks/history_speed.py [RUNS] [CASES]` (200 and 2,000 by default).

1. CPU milliseconds of appending a run: the very first, which adds the cases, the median of the next five and of the
   last five; and the size of the file.
2. Milliseconds of a query of one API over all runs through the view, and of the command's own.
3. Two writers at once, and five that are killed in the middle: does SQLite find the file whole?
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_probe.model.result import Result
from pytest_probe.reports.history_file import HistoryRun, open_history, points
from tests.support.made_results import RUN, made_results

API, ROUNDS = "Functional.linear", 5
QUERY = "SELECT run_id, started, max(noise_ratio) FROM history WHERE api = ? GROUP BY run_id"


def append(path: Path, results: list[Result], number: int) -> float:
    """CPU seconds of appending a run."""
    began = time.process_time()
    run = HistoryRun()
    for result in results:
        run.add(result)
    run.append(path, {**RUN, "started": f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00+00:00"})
    return time.process_time() - began


def median_ms(call: Callable[[], object]) -> float:
    """Of several calls."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def writer(path: Path, number: int) -> subprocess.Popen[bytes]:
    """A process that appends ten runs of 2,000 cases."""
    return subprocess.Popen([sys.executable, __file__, "append", str(path), str(number)])


def disturbed(path: Path) -> str:
    """What SQLite says of a file that two wrote at once, and in which five were killed."""
    for process in [writer(path, number) for number in range(2)]:
        assert process.wait() == 0
    for number in range(ROUNDS):
        process = writer(path, number)
        time.sleep(1.0 + number / 7)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with open_history(path) as file:
        whole = "SELECT count(*) FROM runs WHERE cases != (SELECT count(*) FROM results WHERE run_id = runs.id)"
        partial = file.execute(whole).fetchone()[0]
        runs = file.execute("SELECT count(*) FROM runs").fetchone()[0]
        found = file.execute("PRAGMA integrity_check").fetchone()[0]
    return f"{found}; {runs} runs, {partial} of them in part"


def main() -> None:
    if sys.argv[1:2] == ["append"]:
        results = [*made_results(2000, details=False)]
        for number in range(10):
            append(Path(sys.argv[2]), results, int(sys.argv[3]) * 10 + number)
        return
    runs, cases = (int(text) for text in (sys.argv[1:] or ("200", "2000")))
    results = [*made_results(cases, cases // 50, details=False)]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "history.db")
        times = [append(path, results, number) for number in range(runs)]
        first, last = (1e3 * statistics.median(part) for part in (times[1 : ROUNDS + 1], times[-ROUNDS:]))
        size = path.stat().st_size / 1e6
        print(f"{runs} runs of {cases:,} cases: {size:.0f} MB, {1e6 * size / runs / cases:.0f} bytes a case and run")
        print(
            f"an append: {1e3 * times[0]:.0f} ms the very first, then {first:.0f} ms, at the end {last:.0f} ms of CPU"
        )
        print(f"the last is {last / first:.2f} times the first, {last / (1e3 * times[0]):.2f} times the very first")
        with open_history(path) as file:
            view = median_ms(lambda: file.execute(QUERY, (API,)).fetchall())
            command = median_ms(lambda: points(file, API, "noise_ratio"))
        print(f"one API over all runs: {view:.0f} ms through the view, {command:.0f} ms by the command")
        print(f"two writers at once, five killed: {disturbed(Path(name, 'disturbed.db'))}")


if __name__ == "__main__":
    main()
