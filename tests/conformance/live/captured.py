"""The tool's checker on dumps that our capture wrote: does it read them, and check each API call?

It runs on the CPU, on both sides, so a row that does not pass is a slip of the tool's, by name, or a mistake of ours.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from pytest_probe.capture.debugger import capture
from tests.conformance.agreement import Agreement
from tests.conformance.live.tool import Tool
from tests.support.models import ALL

TASKS = ("statistics", "tensor")
UNKNOWN = "an API that is not in its list"
NEVER = "it never runs `to`, nor what gives uninitialised memory"
SEVERAL = "it has no gradients of calls with several outputs"
COMPLEX = "it draws, compares and reads no complex numbers"
NO_VF = "it calls no function of `torch._VF`; from 8.3.3 on it passes without a comparison"
MIXED = "inputs of two dtypes: it knows autocast of CUDA and NPU alone"
ROUNDED = "a warning for the rounding of 16-bit outputs"


def check(tool: Tool) -> Mapping[str, Agreement]:
    dumps = dict(recorded(tool.folder / "ours"))
    known = names(tool)
    folders = {which: tool.folder / f"checked-{'-'.join(which)}" for which in dumps}
    tool.run("peer_check.py", *(one for which in dumps for one in (dumps[which], folders[which])))
    found = {task: Agreement() for task in TASKS}
    for (model, task), dump in dumps.items():
        _add(found[task], model, entries(dump), _rows(folders[model, task]), known)
    return {f"its checker on our capture, {task}": agreement for task, agreement in found.items()}


def recorded(folder: Path) -> Iterator[tuple[tuple[str, str], Path]]:
    """Each model and task, and the dump of a training step."""
    for model, make in ALL.items():
        for task in TASKS:
            torch.manual_seed(0)
            step = make()
            torch.manual_seed(1)
            with capture(folder / model / task, task=task):
                step()
            yield (model, task), next((folder / model / task).glob("step0/*/dump.json"))


def entries(dump: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dump.read_text())["data"]
    return found


def names(tool: Tool) -> frozenset[str]:
    """The APIs of the tool's list."""
    path = tool.folder / "names.json"
    tool.run("peer_names.py", path)
    return frozenset(json.loads(path.read_text()))


def _rows(folder: Path) -> dict[str, list[str]]:
    """What it said of each API call: the verdicts of both passes, and a message; nothing where it ended before."""
    for path in folder.glob("accuracy_checking_result_*.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            return {name: [*cells, ""][:3] for name, *cells in list(csv.reader(file))[1:]}
    return {}


def _add(
    found: Agreement, model: str, dump: Mapping[str, Any], rows: Mapping[str, list[str]], known: frozenset[str]
) -> None:
    for entry, body in dump.items():
        name, _, direction = entry.rpartition(".")
        if direction != "forward":
            continue
        forward, backward, message = rows.get(name, ("", "", "no row"))
        passed = (forward, backward.strip()) in (("pass", "pass"), ("pass", "")) and not name.startswith("VF.")
        differs = "" if passed else f"{forward}, {backward}: {message}"
        slip = _slip(name, body, forward.lower(), message, known) if differs else ""
        found.add(f"{model} {name}", differs, slip)


def _slip(name: str, body: Mapping[str, Any], forward: str, message: str, known: frozenset[str]) -> str:
    dtypes = set(_dtypes(body))
    api = name.rpartition(".")[0]
    lost = ("'NoneType' object is not subscriptable", "'NoneType' object is not callable", repr(api.partition(".")[2]))
    reasons = {
        NEVER: "in black list" in message,
        SEVERAL: forward == "pass" and message.startswith("Multiple backward"),
        UNKNOWN: forward == "skip" and api not in known and message in lost,
        NO_VF: name.startswith("VF.") and (forward == "pass" or "torch_api" in message),
        COMPLEX: forward in ("skip", "pass", "error") and any("complex" in dtype for dtype in dtypes),
        MIXED: forward == "skip" and "same dtype" in message and len(dtypes) > 1,
        ROUNDED: forward == "warning" and "torch.bfloat16" in dtypes,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _dtypes(tree: Any) -> Iterator[str]:
    """The dtypes of all tensors in a body."""
    if isinstance(tree, Mapping) and "shape" in tree:
        yield tree["dtype"]
    elif isinstance(tree, (list, Mapping)):
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _dtypes(item)
