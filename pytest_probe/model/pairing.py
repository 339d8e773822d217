"""What is found out of a call that two sides made: plain data, which results carry."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

# equal: bit for bit, or by checksums or statistics where that is all there is. rounding: equal inputs, and outputs that
# differ by what float64 explains. inherited: the inputs differ already, and the call itself is right. own: an error of
# the call itself. arguments: equal tensors, and other values that differ. differs: outputs of unknown inputs differ.
# recovers: the inputs differ, and the outputs are equal. replicas: ranks that should hold the same differ. random:
# outputs are drawn, or memory that nobody has written to. unmatched: the other side has no such call. incomparable: it
# has another shape or dtype there.
Status: TypeAlias = Literal[
    "equal",
    "rounding",
    "inherited",
    "own",
    "arguments",
    "differs",
    "recovers",
    "replicas",
    "random",
    "unmatched",
    "incomparable",
]


class Paired(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of side A beside that of side B.

    other names B's entry. suspect is the side whose error is its own, "A", "B" or "A and B", nearer the side that is
    nearer to float64; noise_a and noise_b are the noise ratios of both sides' worst outputs. difference names what the
    sides differ by. gap is the relative RMSE of the outputs that lie farthest apart, inf where one side alone is not
    finite. Of an error of a call's own, line is that of the program, module the module that made the call, and sources
    tell which earlier entry made which input.
    """

    status: Status
    other: str = ""
    suspect: str = ""
    nearer: str = ""
    noise_a: float | str | None = None
    noise_b: float | str | None = None
    difference: str = ""
    gap: float | str = 0.0
    line: str = ""
    module: str = ""
    sources: str = ""
