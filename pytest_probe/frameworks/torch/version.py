"""PyTorch: is the installed release one that the rest of this room can be imported with?"""

from __future__ import annotations

import re

import torch

from pytest_probe.errors import FrameworkTooOld

# The first with `torch.accelerator`, by which an accelerator of any kind is found.
OLDEST = (2, 6)


def check() -> None:
    """Raises FrameworkTooOld for a release before the oldest that works."""
    found = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < OLDEST:
        raise FrameworkTooOld("torch", found, ".".join(map(str, OLDEST)))
