"""The commands that run what failed again, ready for a shell."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from glob import escape
from pathlib import Path

from pytest_probe.plugin.command_line import moves_rootdir
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import Probe


def item_command(
    probe: Probe, path: Path, name: str, dtype: str | None, device: str | None, alone: Mapping[str, str] = {}
) -> str:
    """The command that runs the item of this name again; alone: see Settings.command.

    A path as a positional argument moves rootdir where it lies outside, or next to an ini file of pytest's:
    the project's ini and conftest would be lost. A name that pytest would take apart cannot be one. All these are
    selected by options.
    """
    entry = name.removesuffix(f"[{dtype}]")
    file, separator, inside = address(path).partition("::")
    if "::" not in entry and "[" not in entry and not moves_rootdir(probe.config.rootpath, Path(file)):
        target = os.path.relpath(file, probe.config.invocation_params.dir)
        target = _quoted(f"{target}{separator}{inside}::{name}")
    else:
        target = f"--probe-dump={shlex.quote(str(path))}"
        if not entry.startswith("("):
            target += f" --probe-api={shlex.quote(escape(entry))}"
    return probe.settings.command(target, dtype, device, alone)


def test_command(probe: Probe, path: Path, nodeid: str) -> str:
    """The command that runs a test of the user's own again."""
    place = os.path.relpath(path, probe.config.invocation_params.dir)
    target = _quoted(f"{place}::{nodeid.partition('::')[2]}")
    return probe.settings.command(target, None, probe.device if probe.settings.devices else None)


def _quoted(text: str) -> str:
    """Quoted for a shell, also where that is not needed: what is pasted from a report then always looks alike."""
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"
