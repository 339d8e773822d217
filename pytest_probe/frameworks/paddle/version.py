"""PaddlePaddle: is the installed release one that the rest of this room can be imported with? Imports it."""

from __future__ import annotations

import re
import warnings

from pytest_probe.errors import FrameworkTooOld

# The first whose NumPy is that of the other frameworks.
OLDEST = (3, 0)

with warnings.catch_warnings():
    # Each import says that a compiler's cache is missing, which nothing here needs.
    warnings.filterwarnings("ignore", message="No ccache found")
    import paddle


def check() -> None:
    """Raises FrameworkTooOld for a release before the oldest that works."""
    found = str(paddle.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < OLDEST:
        raise FrameworkTooOld("paddle", found, ".".join(map(str, OLDEST)))
