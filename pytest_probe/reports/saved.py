"""Where --probe-save puts the tensors of a case."""

from __future__ import annotations

from pathlib import Path

SAVED = "saved"


def saved_path(out: Path, label: str, name: str) -> Path:
    """The file in a --probe-out. The name was read from a dump: no part of it may lead elsewhere."""
    safe = "".join(letter if letter.isalnum() or letter in "._-[]" else "_" for letter in name)
    return out / SAVED / label / f"{safe}.pt"
