"""Healthy and faulty kernels, family by family, written from the field's published kernels and bugs.

`open`, with its tasks in `parts`, may be read by whoever works on the rule, `closed` only once the rule stands.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from cases.kernels.entry import Entry


def entries(part: str) -> list[Entry]:
    """All entries of a part, "open" or "closed", module by module."""
    package = import_module(f"{__name__}.{part}")
    modules = [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
    return [entry for module in modules for entry in module.ENTRIES]
