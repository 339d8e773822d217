"""Statistics of tensors on a GPU by kernels of Triton's, which read each element once and write one row a tensor.

What a row holds device_rows.py says.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pytest_probe.capture.torch.device_rows import COLUMNS, SAMPLE, SCALE

MOST_PARTS = 512  # programs that share a tensor
BLOCK = 1024
_PART = 4096  # elements from which on another program helps
# The parameters of pytest_probe_count that are a tensor's own, the first ones.
_OF_A_TENSOR = tl.constexpr(14)
_SCALE = tl.constexpr(SCALE)
_COLUMNS, _SAMPLE = tl.constexpr(COLUMNS), tl.constexpr(SAMPLE)
_MOST, _A_PART = tl.constexpr(MOST_PARTS), tl.constexpr(_PART)
_LEAST, _GREATEST = tl.constexpr(-(2**63)), tl.constexpr(2**63 - 1)
# What an element is read as, what extremes are compared in, and whether it is the index of a number in a table.
DTYPES: dict[torch.dtype, tuple[Any, Any, bool]] = {
    **{
        getattr(torch, name): (getattr(tl, name), tl.int64, False)
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
    },
    torch.bool: (tl.int8, tl.int64, False),
    torch.float16: (tl.float16, tl.float32, False),
    torch.bfloat16: (tl.bfloat16, tl.float32, False),
    torch.float32: (tl.float32, tl.float32, False),
    torch.float64: (tl.float64, tl.float64, False),
    **{
        getattr(torch, name): (tl.uint8, tl.float32, True)
        for name in dir(torch)
        if name.startswith("float8_") and isinstance(getattr(torch, name), torch.dtype)
    },
}


def parts_of(size: int) -> int:
    """How many programs count so many elements."""
    return min(-(-size // _PART), MOST_PARTS)


def constants(dtype: torch.dtype, dense: bool) -> dict[str, Any]:
    """What a kernel is compiled for."""
    read, extreme, coded = DTYPES[dtype]
    return {"dtype": read, "extreme": extreme, "coded": coded, "dense": dense, "block": BLOCK}


@triton.jit
def _numbers(memory, places, mask, table, coded: tl.constexpr):
    found = tl.load(memory + places, mask=mask, other=0)
    if coded:
        found = tl.load(table.to(tl.pointer_type(tl.float32)) + found.to(tl.int32), mask=mask, other=0)
    return found


@triton.jit
def _none(extreme: tl.constexpr, block: tl.constexpr):
    """The extremes of nothing."""
    if extreme == tl.int64:
        high = tl.full([block], _LEAST, extreme)
        low = tl.full([block], _GREATEST, extreme)
    else:
        high = tl.full([block], float("-inf"), extreme)
        low = tl.full([block], float("inf"), extreme)
    return high, low


@triton.jit
def _measure(
    memory, size, e0, s0, e1, s1, s2, table, part, parts,
    extreme: tl.constexpr, coded: tl.constexpr, dense: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    high, low = _none(extreme, block)
    total = tl.zeros([block], tl.float64)
    squares = tl.zeros([block], tl.float64)
    scaled = tl.zeros([block], tl.float64)
    nan = tl.zeros([block], tl.int64)
    inf = tl.zeros([block], tl.int64)
    negative = tl.zeros([block], tl.int64)
    for start in range(part * block, size, parts * block):
        at = start + tl.arange(0, block).to(tl.int64)
        mask = at < size
        places = at
        if not dense:
            places = at % e0 * s0 + at // e0 % e1 * s1 + at // e0 // e1 * s2
        number = _numbers(memory, places, mask, table, coded).to(extreme)
        if extreme != tl.int64:
            nan += (number != number).to(tl.int64)
            inf += (number == float("inf")).to(tl.int64)
            negative += (number == float("-inf")).to(tl.int64)
            finite = (number - number) == 0
            number = tl.where(finite, number, 0)
            mask = mask & finite
        if extreme == tl.int64:
            high = tl.maximum(high, tl.where(mask, number, _LEAST))
            low = tl.minimum(low, tl.where(mask, number, _GREATEST))
        else:
            high = tl.maximum(high, tl.where(mask, number, float("-inf")))
            low = tl.minimum(low, tl.where(mask, number, float("inf")))
        wide = number.to(tl.float64)
        total += wide
        squares += wide * wide
        if extreme == tl.float64:
            scaled += wide * _SCALE * (wide * _SCALE)
    return (
        tl.max(high, 0), tl.min(low, 0), tl.sum(total, 0), tl.sum(squares, 0),
        tl.sum(nan, 0).to(tl.float64), tl.sum(inf, 0).to(tl.float64), tl.sum(negative, 0).to(tl.float64),
        tl.sum(scaled, 0),
    )  # fmt: skip


@triton.jit
def _write(to, high, low, total, squares, nan, inf, negative, scaled, extreme: tl.constexpr):
    if extreme == tl.int64:
        tl.store(to.to(tl.pointer_type(tl.int64)), high)
        tl.store(to.to(tl.pointer_type(tl.int64)) + 1, low)
    else:
        tl.store(to, high.to(tl.float64))
        tl.store(to + 1, low.to(tl.float64))
    tl.store(to + 2, total)
    tl.store(to + 3, squares)
    tl.store(to + 4, nan)
    tl.store(to + 5, inf)
    tl.store(to + 6, negative)
    tl.store(to + 7, scaled)


@triton.jit
def _write_sample(memory, to, a, b, c, sa, sb, sc, table, coded: tl.constexpr):
    each = tl.arange(0, _SAMPLE).to(tl.int64)
    mask = each < a * b * c
    places = each // (b * c) * sa + each // c % b * sb + each % c * sc
    tl.store(to + _COLUMNS + each, _numbers(memory, places, mask, table, coded).to(tl.float64), mask=mask)


@triton.jit
def _column(scratch, column, parts):
    part = tl.arange(0, _MOST)
    return tl.load(scratch + part * _COLUMNS + column, mask=part < parts, other=0, cache_modifier=".cg")


@triton.jit
def _together(scratch, to, parts, extreme: tl.constexpr):
    """The row of a tensor, from those of its parts, in their order."""
    part = tl.arange(0, _MOST)
    no_high, no_low = _none(extreme, _MOST)
    if extreme == tl.int64:
        bits = scratch.to(tl.pointer_type(tl.int64))
        high, low = _column(bits, 0, parts), _column(bits, 1, parts)
    else:
        high, low = _column(scratch, 0, parts).to(extreme), _column(scratch, 1, parts).to(extreme)
    high = tl.max(tl.where(part < parts, high, no_high), 0)
    low = tl.min(tl.where(part < parts, low, no_low), 0)
    total, squares = tl.sum(_column(scratch, 2, parts), 0), tl.sum(_column(scratch, 3, parts), 0)
    nan, inf = tl.sum(_column(scratch, 4, parts), 0), tl.sum(_column(scratch, 5, parts), 0)
    negative, scaled = tl.sum(_column(scratch, 6, parts), 0), tl.sum(_column(scratch, 7, parts), 0)
    _write(to, high, low, total, squares, nan, inf, negative, scaled, extreme)


@triton.jit
def _count(
    address, size, e0, s0, e1, s1, s2, a, b, c, sa, sb, sc, row, table, scratch, counter, part, parts,
    dtype: tl.constexpr, extreme: tl.constexpr, coded: tl.constexpr, dense: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The row of one tensor. scratch has a row for each program, counter is 0 before and after."""
    memory, to = address.to(tl.pointer_type(dtype)), row.to(tl.pointer_type(tl.float64))
    high, low, total, squares, nan, inf, negative, scaled = _measure(
        memory, size, e0, s0, e1, s1, s2, table, part, parts, extreme, coded, dense, block
    )
    if part == 0:
        _write_sample(memory, to, a, b, c, sa, sb, sc, table, coded)
    if parts == 1:
        _write(to, high, low, total, squares, nan, inf, negative, scaled, extreme)
    else:
        between = scratch.to(tl.pointer_type(tl.float64))
        _write(between + part * _COLUMNS, high, low, total, squares, nan, inf, negative, scaled, extreme)
        tl.debug_barrier()
        # The program that is the last to be here sees what all others have written.
        if tl.atomic_add(counter.to(tl.pointer_type(tl.int32)), 1) == parts - 1:
            tl.debug_barrier()
            _together(between, to, parts, extreme)
            tl.store(counter.to(tl.pointer_type(tl.int32)), 0)


# One compiled kernel is for all addresses and sizes: none of them may be known when it is compiled.
@triton.jit(do_not_specialize=range(17))
def pytest_probe_count(
    address: tl.int64, size: tl.int64, e0: tl.int64, s0: tl.int64, e1: tl.int64, s1: tl.int64, s2: tl.int64,
    a: tl.int64, b: tl.int64, c: tl.int64, sa: tl.int64, sb: tl.int64, sc: tl.int64,
    row: tl.int64, table: tl.int64, scratch: tl.int64, counter: tl.int64,
    dtype: tl.constexpr, extreme: tl.constexpr, coded: tl.constexpr, dense: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    _count(
        address, size, e0, s0, e1, s1, s2, a, b, c, sa, sb, sc, row, table, scratch, counter,
        tl.program_id(0), tl.num_programs(0), dtype, extreme, coded, dense, block,
    )  # fmt: skip


@triton.jit(do_not_specialize=range(4))
def pytest_probe_count_all(
    tensors: tl.int64, table: tl.int64, scratch: tl.int64, counter: tl.int64,
    dtype: tl.constexpr, extreme: tl.constexpr, coded: tl.constexpr, dense: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The rows of several tensors: at this address stand the arguments of each, one after the other."""
    part, which = tl.program_id(0), tl.program_id(1)
    given = tensors.to(tl.pointer_type(tl.int64)) + which * _OF_A_TENSOR
    size = tl.load(given + 1)
    parts = tl.minimum((size + _A_PART - 1) // _A_PART, _MOST).to(tl.int32)
    if part < parts:
        _count(
            tl.load(given), size, tl.load(given + 2), tl.load(given + 3), tl.load(given + 4), tl.load(given + 5),
            tl.load(given + 6), tl.load(given + 7), tl.load(given + 8), tl.load(given + 9), tl.load(given + 10),
            tl.load(given + 11), tl.load(given + 12), tl.load(given + 13), table,
            scratch + which * (_MOST * _COLUMNS * 8), counter + which * 4,
            part, parts, dtype, extreme, coded, dense, block,
        )  # fmt: skip
