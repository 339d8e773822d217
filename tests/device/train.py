"""Trainings on the device, with captures and without: python -m tests.device.train LIBRARY FOLDER

Trains each model for two steps under each task, on the device and on the CPU; "nothing" is a training without a
capture. A dump lies in the folder FOLDER/DEVICE/MODEL/TASK. Prints, as JSON, for each of these the losses of its steps,
how often each step waited for the device, how often its end did, and how often what nothing waits for was copied.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from pytest_probe import PrecisionDebugger, timing
from tests.device import pretend
from tests.support.models import ALL

MODELS = ("gpt", "cnn", "detection", "spectral")
TASKS = ("nothing", "structure", "statistics", "tensor")
TIMINGS = ("timed", "timed asynchronously")


def trained(device: str, model: str, task: str, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    debugger = PrecisionDebugger(dump_path=str(folder), task=task) if task != "nothing" else None
    losses, waits, copies = [], [], []
    with torch.device(device):
        step = ALL[model]()
        for _ in range(2):
            before, copied = pretend.waits(), pretend.copies()
            if debugger is not None:
                debugger.start()
            losses.append(step().detach())
            if debugger is not None:
                debugger.stop()
            between = pretend.waits()
            if debugger is not None:
                debugger.step()
            waits.append((between - before, pretend.waits() - between))
            copies.append(pretend.copies() - copied)
    return {"losses": [loss.item() for loss in losses], "waits": waits, "copies": copies}


def timed(model: str, way: str) -> dict[str, Any]:
    """As trained. The end of the timing is that of its only step."""
    torch.manual_seed(0)
    with torch.device(pretend.NAME):
        step = ALL[model]()
        before = pretend.waits()
        with timing(asynchronous=way != "timed", backward=True) as found:
            loss = step().detach()
            between = pretend.waits()
        waits = [(between - before, pretend.waits() - between)]
    calls = {f"{api.name} {api.direction}": spent.calls for api, spent in found.rows()}
    return {"losses": [loss.item()], "waits": waits, "calls": calls}


def main(library: str, folder: str) -> None:
    pretend.load(library)
    ways = [(pretend.NAME, model, task) for model in MODELS for task in TASKS]
    ways += [("cpu", model, "structure") for model in MODELS]
    found = {"/".join(way): trained(*way, Path(folder, *way)) for way in ways}
    found |= {f"{pretend.NAME}/{model}/{way}": timed(model, way) for model in MODELS for way in TIMINGS}
    print(json.dumps(found), flush=True)
    # Python may end the device's thread of autograd's where C++ cannot bear it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
