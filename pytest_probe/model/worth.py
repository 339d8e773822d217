"""What a pass says of the errors that it would have caught."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Detects(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest errors of an output that its judge would have found.

    scale is the relative error of all elements, at least one roundoff of the dtype; None where an error of 100 % is
    not found, as of an output that is all zero. element is the error of one element that is as large as the output's
    RMS, row that of each element of one row along the last dimension, both in ulps of the element, one at least; row is
    None without rows. terms is how many terms are added for one element, None where that is not known or is one;
    without one of them an element of equal terms is 1 / terms too small: term says whether that would be found in all
    elements.
    """

    scale: float | None
    element: float
    row: float | None = None
    terms: int | None = None
    term: bool | None = None

    @property
    def words(self) -> str:
        """The errors as a report tells them."""
        scale = "no scale error" if self.scale is None else f"a scale error of {self.scale:.2g}"
        parts = [scale, f"one element off by {_ulps(self.element)}"]
        if self.row is not None:
            parts.append(f"a row off by {_ulps(self.row)}")
        if self.terms is not None:
            parts.append(f"one of {self.terms:,} terms missing" if self.term else f"no missing term of {self.terms:,}")
        return ", ".join(parts)


def _ulps(number: float) -> str:
    return "1 ulp" if number == 1 else f"{number:.2g} ulps" if number < 100 else f"{number:,.0f} ulps"


class Worth(msgspec.Struct, frozen=True, omit_defaults=True):
    """What judging spoiled outputs of a case shows. faults has the outputs in which each fault was found, and in which
    it was planted; scale tells whether any output shows that all of it is too large by WORTH_SCALE. weak says why the
    case proves little, "" where it does not."""

    faults: Mapping[str, tuple[int, int]]
    scale: bool
    weak: str = ""


# The error that the share of a run speaks of: half of the distance between two numbers of bfloat16.
WORTH_SCALE = 2.0**-8
