"""The failure that stands for its group, as pytest prints it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

_OTHERS = "the others of this group, each in full with -vv:"


class FirstOfGroup:
    """The text of a failure below the line of its group, and above the lines of the others."""

    def __init__(self, own: Any, group: str, others: str) -> None:
        self._own, self._group, self._others = own, group, others

    @property
    def reprcrash(self) -> Any:
        """What the short summary shows of it: of a worker's death the text itself."""
        return SimpleNamespace(message=self._own) if isinstance(self._own, str) else self._own.reprcrash

    def __str__(self) -> str:
        return f"{self._group}\n\n{self._own}\n\n{_OTHERS}\n{self._others}"

    def toterminal(self, writer: Any) -> None:
        writer.line(f"{self._group}\n")
        if hasattr(self._own, "toterminal"):
            self._own.toterminal(writer)
        else:
            writer.line(str(self._own))
        writer.line(f"\n{_OTHERS}\n{self._others}")
