"""What runs a case again: the command, ready for a shell; and for --probe-save its tensors as files, with a script that
makes the call on them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.command_line import moves_rootdir
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.records import stable_path
from pytest_probe.reports.results_file import saved_path
from pytest_probe.system.files import replacing
from pytest_probe.user_errors import first_line

if TYPE_CHECKING:
    from pytest_probe.check import CaseOutcome

# How the note about tensors that the disk did not take begins.
NOT_SAVED = "not saved: "


def item_command(
    probe: ProcessSession, path: Path, name: str, dtype: str | None, device: str | None, alone: Mapping[str, str] = {}
) -> str:
    """The command that runs the item of this name again; alone: see Settings.command.

    A path as a positional argument moves rootdir where it lies outside, or next to an ini file of pytest's:
    the project's ini and conftest would be lost. A name that pytest would take apart cannot be one. All these are
    selected by options.
    """
    entry = name.removesuffix(f"[{dtype}]")
    file, separator, inside = address(path).partition("::")
    if "::" not in entry and "[" not in entry and not moves_rootdir(probe.config.rootpath, Path(file)):
        # As in the node id.
        target = os.path.relpath(stable_path(Path(file)), probe.config.invocation_params.dir)
        target = _quoted(f"{target}{separator}{inside}::{name}")
    else:
        target = f"--probe-dump={shlex.quote(str(path))}"
        if not entry.startswith("("):
            target += f" --probe-api={shlex.quote(escape(entry))}"
    return probe.settings.command(target, dtype, device, alone)


def test_command(probe: ProcessSession, path: Path, nodeid: str) -> str:
    """The command that runs a test of the user's own again."""
    place = os.path.relpath(path, probe.config.invocation_params.dir)
    target = _quoted(f"{place}::{nodeid.partition('::')[2]}")
    return probe.settings.command(target, None, probe.device if probe.settings.devices else None)


def _quoted(text: str) -> str:
    """Quoted for a shell, also where that is not needed: what is pasted from a report then always looks alike."""
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"


def saved_file(probe: ProcessSession, label: str, name: str) -> Path:
    """Where a case's tensors go: where the file of rules says, else into --probe-out."""
    folder = probe.settings.rules.saved or probe.settings.out
    assert folder is not None
    return saved_path(folder, label, name)


def save(probe: ProcessSession, checked: CaseOutcome, verdict: Verdict, file: Path) -> Verdict:
    """Save a case's tensors; a disk that cannot take them is a note on the verdict, which the summary repeats."""
    path = probe.written_at(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            checked.save(temporary)
        script = checked.script(path.with_suffix(".py").name)
        with replacing(path.with_suffix(".py")) as temporary:
            temporary.write_text(script, encoding="utf-8")
    except (OSError, RuntimeError, MemoryError) as error:
        note = f"{NOT_SAVED}{path} cannot be written ({getattr(error, 'strerror', None) or first_line(error)})"
        return replace(verdict, notes=(*verdict.notes, note))
    return verdict
