"""Extensions in C that a wheel may have or not."""

from __future__ import annotations

import importlib
from types import ModuleType


def load(name: str, revision: int) -> tuple[ModuleType | None, str]:
    """The extension of a revision of its source, and the instructions that it uses on this CPU; or None and why there
    is none."""
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        return None, "none was built for this Python"
    except Exception as error:  # another platform's, or a damaged one
        return None, f"it cannot be loaded: {error}"
    if getattr(found, "REVISION", None) != revision:
        return None, "it was built from another source; install pytest-probe again"
    return found, found.INSTRUCTIONS
