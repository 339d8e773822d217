"""How much of the disk a capture leaves to others."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

from pytest_probe.capture.outcome import in_bytes

LEAST_BYTES = 2_000_000_000
LEAST_SHARE = 0.05


class DiskFills(Exception):
    """Less of the disk is left than a capture leaves free."""


def free(folder: Path) -> int:
    """Bytes that are left where the folder is, or will be. Raises OSError."""
    return shutil.disk_usage(_existing(folder)).free


def check_room(folder: Path) -> None:
    """Raises DiskFills, or OSError."""
    usage = shutil.disk_usage(_existing(folder))
    least = max(LEAST_BYTES, int(LEAST_SHARE * usage.total))
    if usage.free < least:
        raise DiskFills(
            f"{in_bytes(usage.free)} of the disk are left, and a capture leaves {in_bytes(least)} free: "
            f"{LEAST_SHARE:.0%} of it, and {in_bytes(LEAST_BYTES)} at least"
        )


def _existing(folder: Path) -> Path:
    return next(each for each in chain((folder,), folder.parents) if each.exists())
