"""The end of `pytest --help`: what is listed only there, since the list imports what judges."""

from __future__ import annotations

import shutil
import textwrap

from pytest_probe.options import NAMED, standards

INDENT = 27


def text() -> str:
    """The standards of tools, a line or more each, in the layout of pytest's help."""
    width = max(shutil.get_terminal_size().columns, 2 * INDENT)
    lines = [f"\nStandards of tools, for {NAMED['standard'].flag}:"]
    for name, help_ in standards().items():
        lines += textwrap.wrap(f"  {name:<{INDENT - 3}} {help_}", width, subsequent_indent=" " * INDENT)
    return "\n".join(lines)
