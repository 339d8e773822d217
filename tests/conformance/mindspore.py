"""msprobe's checkers for MindSpore on dumps of our capture: do they read them, and say something of each API of their
lists? `make conformance-mindspore`.

    python -m tests.conformance.mindspore PYTHON ...      # in the environment of make test-mindspore

Each PYTHON has MindSpore and a release of mindstudio-probe. Prints a table of what the checkers said of each direction,
why they skipped (a dump of ours has no gradients of arguments, which they want in task tensor), and each call
that is unlike: its forward does not pass, or its backward is an error. The exit status is 1 where there is one.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pytest_probe.capture.debugger import capture
from tests.conformance.live.tool import Tool, run

# Built for NumPy 1, MindSpore's first call raises a SystemError with NumPy 2, in the tool's process as in any.
NUMPY_2 = "returned a result with an exception set"
MODELS = ("MLP", "GPT", "CNN")
LISTED = """
import importlib.util, json, pathlib, yaml
package = pathlib.Path(importlib.util.find_spec("msprobe").origin).parent / "mindspore/api_accuracy_checker"
print(json.dumps(yaml.safe_load((package / "checker_support_api.yaml").read_text())["tensor"]))
"""


def main() -> int:
    unlike: list[str] = []
    reasons: Counter[str] = Counter()
    print("| msprobe | dump | direction | calls of its lists | pass | error | SKIP | blank | no row |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        dumps = dict(recorded(folder / "ours"))
        for tool in [Tool.of(python, folder) for python in sys.argv[1:]]:
            methods = frozenset(json.loads(run([tool.python, "-c", LISTED], folder).splitlines()[-1]))
            for title, dump in dumps.items():
                rows = checked(tool, dump, tool.folder / title.replace(", ", "-"))
                calls = list(of_its_lists(dump, methods))
                for place, direction in enumerate(("forward", "backward")):
                    said = Counter(rows[call][place] if call in rows else "no row" for call in calls)
                    cells = [str(said[kind]) for kind in ("pass", "error", "SKIP", "", "no row")]
                    print("|", " | ".join((tool.release, title, direction, str(len(calls)), *cells)), "|", flush=True)
                for call in calls:
                    forward, backward, message = rows.get(call, ("no row", "", ""))
                    known = forward == "SKIP" and NUMPY_2 in message
                    if (forward != "pass" and not known) or backward == "error":
                        unlike.append(f"{tool.release}, {title}: {call}: {forward}, {backward}: {message}")
                    elif known or backward == "SKIP":
                        reasons[f"{tool.release}, {title}: {message.replace(call, 'X')}"] += 1
    print("\nskipped:", *(f"{count}: {reason}" for reason, count in reasons.items()), sep="\n  ")
    print("\nunlike:", *unlike, sep="\n  ")
    return 1 if unlike else 0


def recorded(folder: Path) -> Iterator[tuple[str, Path]]:
    """A training step of each model, by each task: what it is, and its dump."""
    from benchmarks.capture_overhead import SIZES
    from benchmarks.overhead import mindspore as models

    for model in MODELS:
        for task in ("statistics", "tensor"):
            step = models.training(*SIZES["tiny GPT"]) if model == "GPT" else models.OTHERS[model]()
            with capture(folder / model / task, task=task, framework="mindspore"):
                step()
            yield f"{model}, {task}", next((folder / model / task).glob("step0/*/dump.json"))


def of_its_lists(dump: Path, methods: frozenset[str]) -> Iterator[str]:
    """The calls that msprobe's checker takes: functions of mint, and some methods of tensors."""
    for entry in json.loads(dump.read_text())["data"]:
        call, _, direction = entry.rpartition(".")
        prefix, _, rest = call.partition(".")
        listed = prefix == "Tensor" and rest.rpartition(".")[0] in methods
        if direction == "forward" and (prefix in ("Mint", "MintFunctional") or listed):
            yield call


def checked(tool: Tool, dump: Path, folder: Path) -> dict[str, tuple[str, str, str]]:
    """What the tool says of each call: of forward, of backward ("" where it has none), and its message. Raises
    ToolFailed."""
    command = ["acc_check"] if tool.release.startswith("26") else ["-f", "mindspore", "run_ut"]
    told = [tool.python, "-m", "msprobe.msprobe", *command, "-api_info", str(dump), "-o", str(folder)]
    run(told, tool.folder)
    (path,) = folder.glob("accuracy_checking_result_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {call: (forward.strip(), backward.strip(), message) for call, forward, backward, message, *_ in rows}


if __name__ == "__main__":
    sys.exit(main())
