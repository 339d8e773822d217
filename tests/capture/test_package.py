from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import pytest_probe


def test_the_package_can_be_called_as_the_function(tmp_path: Path) -> None:
    import_module("pytest_probe.capture.debugger")
    package: Any = import_module("pytest_probe.capture")
    assert pytest_probe.capture is package or pytest_probe.capture is package.debugger.capture
    with pytest_probe.capture(tmp_path / "dumps"):
        torch.ones(2).relu()
    assert "relu" in next((tmp_path / "dumps").rglob("dump.json")).read_text(encoding="utf-8")
    with package(tmp_path / "others"):
        torch.ones(2).relu()
    assert list((tmp_path / "others").rglob("dump.json"))
