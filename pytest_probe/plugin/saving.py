"""--probe-save: the tensors of a case as files, with a script that makes the call on them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.results_file import saved_path
from pytest_probe.system.files import replacing
from pytest_probe.user_errors import first_line

if TYPE_CHECKING:
    from pytest_probe.check import Checked

# How the note about tensors that the disk did not take begins.
NOT_SAVED = "not saved: "


def saves(probe: Probe, verdict: Verdict, *, worse: bool = False) -> bool:
    """Are the tensors of a case with this verdict to be saved? worse: than the baseline."""
    if probe.settings.save == "all":
        return verdict.verdict != "skip"
    return probe.settings.save == "failing" and (worse or verdict.fails(probe.settings.strict))


def saved_file(probe: Probe, label: str, name: str) -> Path:
    """Where a case's tensors go: where the file of rules says, else into --probe-out."""
    folder = probe.settings.rules.saved or probe.settings.out
    assert folder is not None
    return saved_path(folder, label, name)


def save(probe: Probe, checked: Checked, verdict: Verdict, file: Path) -> Verdict:
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
