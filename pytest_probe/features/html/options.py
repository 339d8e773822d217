"""The file of --probe-html."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pytest_probe.option_types import Given, Report


class Page(Report):
    def read(self, given: Given) -> Path | None:
        """Raises SettingsError also where what makes the page is not installed."""
        path = super().read(given)
        if path is not None and importlib.util.find_spec("jinja2") is None:
            wanted = "it needs jinja2, which is not installed: pip install 'pytest-probe[report]'"
            raise given.wrong(wanted, str(path))
        return path
