"""Captures of a few calls, for tests of what they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_probe import capture


def recorded(folder: Path, program: Callable[[], object], **options: Any) -> dict[str, Any]:
    """The entries of a dump that a program leaves."""
    with capture(folder, **options):
        program()
    return entries(folder)


def entries(folder: Path, step: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content(folder, step)["data"]
    return found


def content(folder: Path, step: int = 0) -> dict[str, Any]:
    """The dump of a step, of one process."""
    (path,) = folder.glob(f"step{step}/*/dump.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def forwards(found: dict[str, Any]) -> list[str]:
    """The calls of a dump ("Torch.sin.0"), in their order."""
    return [name.removesuffix(".forward") for name in found if name.endswith(".forward")]


def construct(folder: Path, step: int = 0) -> dict[str, str | None]:
    """What stands in which module, of a step of one process."""
    (path,) = folder.glob(f"step{step}/*/construct.json")
    found: dict[str, str | None] = json.loads(path.read_text())
    return found
