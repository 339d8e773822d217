"""Cases that prove little, by API and reason: what a run has found, and what `show` expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field

from pytest_probe.reports.terminal import count, wrap

# Reasons that are listed, of an API each.
_LISTED = 20


class WeakCases(Struct):
    """names has those of the cases by API with direction, and reason; apis counts them by API."""

    names: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    apis: Counter[str] = field(default_factory=Counter)

    def add(self, api: str, name: str, reason: str) -> None:
        self.names.setdefault((api, reason), []).append(name)
        self.apis[api] += 1

    def lines(self, verb: str, width: int, source: str = "") -> Iterator[str]:
        """verb: "prove", in its form; source says what tells it, behind a comma."""
        if not self.names:
            return
        yield f"{count(self.apis.total(), 'case')} {verb} little or nothing{source}:"
        for (api, reason), names in list(self.names.items())[:_LISTED]:
            # By the numbers in them.
            first, *rest = sorted(
                names, key=lambda name: [(int(x), "") if x.isdigit() else (-1, x) for x in name.split(".")]
            )
            more = f" and {len(rest):,} more of {api.split()[0]}" if rest else ""
            yield from wrap(f"{first}{more}: {reason}", "    ", "  ", width)
        if len(self.names) > _LISTED:
            yield f"  and {len(self.names) - _LISTED:,} more reasons"
