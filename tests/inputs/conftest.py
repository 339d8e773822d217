from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.inputs import Arguments, StoredTensors, build
from pytest_probe.records.model import Call

Build = Callable[..., Arguments]


@pytest.fixture
def arguments(tmp_path: Path) -> Build:
    """build() with defaults: a call of Torch.exp, its dump in an empty folder, generated inputs, seed 0."""

    def make(*args: Any, kwargs: Any = None, outputs: Any = None, gradients: Any = None, **options: Any) -> Arguments:
        files = StoredTensors(tmp_path / "dump.json", (tmp_path / "data",), np.load)
        defaults = {"record": "Torch.exp.0", "api": "Torch.exp", "dtype": None, "seed": 0, "kind": "generated"}
        return build(Call(args, kwargs or {}, outputs, gradients), **{"files": files, **defaults, **options})

    return make
