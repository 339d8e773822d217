"""Writes docs/options.md from the table of options: `python docs/options.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_probe.options import OPTIONS, Option, standards

HEAD = """# Options

Options have ini keys with the same meaning: `probe_device = "cuda"` under `[tool.pytest.ini_options]`. Lists with
commas stay strings; repeatable options are lists. The command line overrides the ini file. A wrong value stops the run
before anything is collected.

| option | ini key | |
|---|---|---|
"""
STANDARDS = """
The standards of tools, for `--probe-standard`. [Tools' standards](tool-standards.md) says what each one catches:

| standard | |
|---|---|
"""


def _whole(option: Option[Any]) -> str:
    end = "" if option.help.endswith("?") or not option.details else "."
    return f"{option.help}{end} {option.details}".strip()


def row(option: Option[Any]) -> str:
    """A table row."""
    value = f"={option.metavar}" if option.metavar else ""
    flag = f"`{option.flag}{f'[{value}]' if option.words else value}`".replace("|", "\\|") if option.cli else ""
    key = f"`{option.key}`" if option.ini else ""
    return f"| {flag} | {key} | {_whole(option)} |\n"


def text() -> str:
    """The whole page."""
    tools = "".join(f"| `{name}` | {help_} |\n" for name, help_ in standards().items())
    return HEAD + "".join(map(row, OPTIONS)) + STANDARDS + tools


if __name__ == "__main__":
    Path(__file__).with_name("options.md").write_text(text(), encoding="utf-8")
