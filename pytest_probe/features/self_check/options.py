"""What --probe-self names."""

from __future__ import annotations

from pytest_probe.option_types import Given, Names
from pytest_probe.options import SELF

NAME = SELF
QUESTIONS = ("wider", "cpu", "smooth", "finite")


class Asked(Names):
    """Names of questions, in the order in which they are asked; none of them for all."""

    def __init__(self) -> None:
        super().__init__(*QUESTIONS)

    def read(self, given: Given) -> tuple[str, ...]:
        named = super().read(given)
        return tuple(name for name in QUESTIONS if name in named)
