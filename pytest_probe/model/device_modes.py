"""What devices do by intent to run faster: each mode by the name that a user gives it, and how it is emulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.numerics.dtypes import NARROW_DTYPES

Rounding: TypeAlias = Literal["even", "zero"]
Cut: TypeAlias = Literal["", "both", "first", "second", "sums"]
ModeScope: TypeAlias = Literal["all", "matmul", "convolution"]
# Between a mode and the products that a flag allows it for, as "tf32 in convolution".
_SCOPE_WORD = " in "


class Mode(Struct, frozen=True):
    """One way of arithmetic, emulated inside a run on the CPU.

    bits: significand bits that the operands of products are rounded to, 0 for all; split: each operand is the sum of
    two such numbers, the product of both remainders is dropped; tiles: convolutions transform their operands before
    that, as Winograd does for tiles of so many outputs on a side, 0 for none. sums: the dtype that partial sums are
    rounded to, of `chunks` pieces of a sum, "" for none, "narrow" for the case's own. scope: which products these
    concern. cut: what is cut towards zero: both operands, one of them, or sums of products, which lose a roundoff with
    each term, in `chunks` pieces. flush: subnormal float32 numbers are zero; fine: inside kernels as well.
    approximate: exp, log, sin and their like are off by what CUDA's fast intrinsics may err. carried: what a recurrence
    passes on, h in h = a h + b, is rounded to `bits` as well. short: significand bits of sums of products: `terms` at a
    time, and the sum so far, are cut to those of the largest of them; promoted: after so many places the sum goes on in
    float32, 0 for never.
    """

    bits: int = 0
    split: bool = False
    tiles: int = 0
    scope: ModeScope = "all"
    sums: str = ""
    chunks: int = 0
    cut: Cut = ""
    flush: bool = False
    fine: bool = False
    approximate: bool = False
    carried: bool = False
    short: int = 0
    promoted: int = 0
    terms: int = 0


class Behaviour(Struct, frozen=True):
    """A device mode in words, and the modes that it may be.

    Of operands that are rounded only the size of the error is known: how a device breaks ties, transforms them and
    splits a sum is its own choice. Each variant is such a size. sampled: other rounding is known by size only, too, so
    that variants are samples of it and no reference. cuts: results are cut to their dtype where others round. dtypes
    are those of the outputs that it concerns, classes those of the APIs, all if empty, and others those that
    it does not. centred: samples have a direction, so that their mean is what the device errs around.
    """

    name: str
    description: str
    variants: tuple[Mode, ...]
    sampled: bool = False
    dtypes: tuple[str, ...] = ("float32", "complex64")
    cuts: bool = False
    classes: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    centred: bool = False

    @property
    def rounds(self) -> bool:
        """Does it round the operands of products?"""
        return any(mode.bits for mode in self.variants)

    @property
    def flushes(self) -> bool:
        """Does it flush, and nothing else?"""
        return bool(self.variants) and not self.sampled and all(mode.flush for mode in self.variants)


def _inputs(bits: int, *, split: bool = False) -> tuple[Mode, ...]:
    return tuple(Mode(bits=bits, split=split, tiles=tiles) for tiles in (0, 2, 4))


# Dtypes whose smallest normal number is 2^-126. float16's numbers all lie above it.
_FLUSHED = ("float32", "complex64", "bfloat16")
# Pieces of a sum. Where devices split one is not known: powers of two that a split-K kernel and a chain of blocks may
# have. Chosen; of a real device none was measured.
_SPLITS, _CHAINS = (2, 4, 8, 16), (16, 64, 256)

# Tensor cores of Hopper keep 13 bits behind the point of the largest of the terms that they add at a time, 32 of FP8,
# and Ada's of 16 ("DeepSeek-V3 Technical Report", arXiv:2412.19437, 3.5.2; MMA-Sim, arXiv:2511.10909).
# Without fast accumulation kernels hand the sum to float32 after 128 places (3.3.2 there, and CUTLASS's); libraries do
# not say after how many: 32 are the least, and 512 chosen.
_SHORT = ((14, 32, 0), (14, 16, 0), (14, 32, 128), (14, 16, 128), (14, 32, 32), (14, 32, 64), (14, 32, 512))

# What --probe-allow takes.
MODES: Mapping[str, Behaviour] = {
    behaviour.name: behaviour
    for behaviour in (
        Behaviour("tf32", "TF32 inputs", _inputs(11)),
        Behaviour("hf32", "HF32 inputs", _inputs(12)),
        Behaviour("bf16x3", "inputs of two bfloat16 numbers each (BF16x3)", _inputs(8, split=True)),
        Behaviour("bf16", "bfloat16 inputs", _inputs(8)),
        Behaviour("ftz", "flush to zero", (Mode(flush=True), Mode(flush=True, fine=True)), dtypes=_FLUSHED),
        Behaviour(
            "reduced-reduction",
            "partial sums rounded to 16 bit",
            tuple(Mode(sums="narrow", chunks=count) for count in _SPLITS),
            sampled=True,
            dtypes=NARROW_DTYPES,
            others=frozenset({"short_sums"}),  # torch asks no flag for these products
        ),
        Behaviour(
            "short-accumulation",
            "sums of products of about 14 bits",
            tuple(Mode(short=bits, terms=terms, promoted=places) for bits, terms, places in _SHORT),
            sampled=True,
            dtypes=("float32", *NARROW_DTYPES),
            classes=frozenset({"short_sums"}),
            centred=True,
        ),
        Behaviour("truncate", "results cut to 16 bit", (), dtypes=NARROW_DTYPES, cuts=True),
        Behaviour(
            "fast-math",
            "fast intrinsics",
            (Mode(approximate=True, flush=True),) * 4,
            sampled=True,
            dtypes=("float32", "complex64", *NARROW_DTYPES),
        ),
    )
}
# What explains an error but is nobody's intent.
ACCUMULATIONS: tuple[Behaviour, ...] = tuple(
    Behaviour(
        "",
        f"{dtype} accumulation",
        tuple(Mode(bits=bits, sums=dtype, chunks=count * part // 4) for part in (4, 3)),
        sampled=True,
        dtypes=("float32", *NARROW_DTYPES),
    )
    for dtype, bits in (("float16", 11), ("bfloat16", 8))
    for count in _CHAINS
)


# Tensor cores align the products of a few terms, and the sum so far, to the largest and cut: half a place of float32 is
# lost with each, a roundoff, so that a sum of K terms alike loses at most K / 2 roundoffs. 16 pieces tell how it grew.
CUT_SUMS = Mode(cut="sums", chunks=16)


def is_mode(name: str) -> bool:
    """Is there a device mode of this name, with or without what it is allowed for?"""
    return name.partition(_SCOPE_WORD)[0] in MODES


def behaviour(name: str) -> Behaviour:
    """The device mode of a name, as "tf32", or "tf32 in convolution" where a flag allows it there only."""
    plain, _, scope = name.partition(_SCOPE_WORD)
    found = MODES[plain]
    if not scope:
        return found
    variants = tuple(replace(mode, scope=scope) for mode in found.variants)
    return replace(found, name=name, variants=variants)
