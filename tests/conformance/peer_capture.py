"""msprobe's own capture of small models, as statistics of level L1; under a Python that has it (and its torch).

    PYTHON tests/conformance/peer_capture.py FOLDER MODEL ...

Each MODEL of tests/support/models.py is recorded for one training step, as `live/captured.py` does with ours; where a
release chooses by risk level, all calls are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from msprobe.pytorch import PrecisionDebugger

from tests.support.models import ALL


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names:
        torch.manual_seed(0)
        step = ALL[name]()
        debugger = PrecisionDebugger(config_path=str(written(Path(folder, name))))
        # Also what the tool itself drew from the generator, or seeded, before the step.
        torch.manual_seed(1)
        debugger.start()
        step()
        debugger.stop()
        debugger.step()
        PrecisionDebugger._instance = None


def written(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "config.json"
    every = {"scope": [], "list": [], "data_mode": ["all"]}
    head = {"task": "statistics", "level": "L1", "risk_level": "ALL", "rank": [], "step": []}
    path.write_text(json.dumps({**head, "dump_path": str(folder), "statistics": every}))
    return path


if __name__ == "__main__":
    main()
