"""What is found out of a call that two sides made: plain data, which results carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

SideName: TypeAlias = Literal["A", "B"]
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


OWN_ERROR = "own error"
# What a table says of a status, where that is another word.
_WORDS: Mapping[Status, str] = {
    "own": OWN_ERROR,
    "recovers": "recovered",
    "arguments": "other arguments",
    "differs": "differing",
    "replicas": "replicas that differ",
    "incomparable": "not compared",
}


class TableTensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tensor or a number of a call, as a side's dump has it and other tools' tables show it.

    name is as ptdbg writes it ("Torch_relu_0_forward_input.0"), place as msprobe does ("Torch.relu.0.forward.input.0").
    dtype is a text, "torch.float32" or "<class 'int'>"; statistics are max, min, mean and 2-norm, None where the dump
    has none. file holds the values, "" without.
    """

    name: str
    place: str
    dtype: str
    shape: tuple[int, ...]
    statistics: tuple[float | int | bool | str | None, ...]
    file: str = ""

    @property
    def is_number(self) -> bool:
        return self.dtype.startswith("<class")

    @property
    def values_file(self) -> str:
        """The name of the file that holds the values, or would."""
        return self.file or f"{self.name}.npy"


class TableRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tensor of A and that of B, None where B has none; and what each tool prints of both (see dump_metrics)."""

    a: TableTensor
    b: TableTensor | None = None
    ptdbg_23: tuple[str, ...] = ()
    ptdbg_40: tuple[str, ...] = ()
    msprobe: tuple[str, ...] = ()


class Paired(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of side A and that of side B.

    other names B's entry. suspect is the side whose error is its own, "A", "B" or "A and B", nearer the side that is
    nearer to float64; noise_a and noise_b are the noise ratios of both sides' worst outputs. difference names what the
    sides differ by. gap is the relative RMSE of the outputs that lie farthest apart, inf where one side alone is not
    finite. Of an error of a call's own, line is that of the program, module the module that made the call, and sources
    tell which earlier entry made which input. leaves names inputs that differ though no recorded call made them. rows
    are those of other tools' tables, where the run writes these, and dump_line where the dump of A tells of the call, 0
    where its format has no lines.
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
    leaves: str = ""
    rows: tuple[TableRow, ...] = ()
    dump_line: int = 0

    @property
    def description(self) -> str:
        """What the call is, in a word or two."""
        return _WORDS.get(self.status, self.status) + (f" of {self.suspect}" if self.suspect else "")
