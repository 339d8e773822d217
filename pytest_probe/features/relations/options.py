"""What --probe-relations names."""

from __future__ import annotations

from pytest_probe.option_types import Given, Names

# In the order in which they are asked: what hangs on other memory, or on chance, is known before bits are compared.
NAMES = ("fresh", "guard", "again", "out", "inplace", "alias", "batch", "order", "layout", "stream")
_ALL = "all"


class Asked(Names):
    """Names of relations; all of them."""

    def __init__(self) -> None:
        super().__init__(*NAMES, _ALL)

    def read(self, given: Given) -> tuple[str, ...]:
        named = super().read(given)
        return NAMES if _ALL in named else tuple(name for name in NAMES if name in named)
