"""What a page of --probe-html holds, read from its file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def embedded(page: Path, name: str) -> Any:
    """The data of one script element: "rows", "details", ..."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf'<script type="application/json" id="probe-{name}">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def verdicts(page: Path) -> dict[str, str]:
    """By the names of the cases."""
    names = embedded(page, "names")["names"]["verdicts"]
    return {row[1]: names[row[6]] for row in embedded(page, "rows")}


def details(page: Path) -> dict[str, dict[str, Any]]:
    """By the names of the cases that are shown in detail."""
    rows = embedded(page, "rows")
    return {rows[int(row)][1]: found for row, found in embedded(page, "details").items()}
