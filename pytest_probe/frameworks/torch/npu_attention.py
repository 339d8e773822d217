"""torch_npu.npu_fusion_attention: layouts, sparse modes, and sequences of several lengths in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_probe import references
from pytest_probe.errors import NoReference
from pytest_probe.references.arguments import check_known, check_shapes, check_unset, is_broadcast

# Where batch, sequence and head stand in a layout; H is head and place in it, one behind the other.
_HEADS = {"BSH": "BSN", "SBH": "SBN", "BSND": "BSN", "BNSD": "BNS"}
# Extents of the mask that stands for all triangles.
COMPRESSED = 2048
# Each number of the softmax's state stands so many times.
COPIES = 8
_UNLIMITED = 2147483647


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Any = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _UNLIMITED,
    next_tockens: int = _UNLIMITED,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Any = None,
    dropout_mask: Any = None,
    seed: int = 0,
    offset: int = 0,
) -> tuple[Any, ...]:
    """Attention; largest score and sum of each row, in float32, without a gradient; a tensor without elements; seed,
    offset and length of a dropout's mask."""
    layout = input_layout.upper()
    check_known("input_layout", layout, (*_HEADS, "TND"))
    check_known("sparse_mode", sparse_mode, range(5))
    check_known("keep_prob", keep_prob, (1.0,))
    check_unset(padding_mask=padding_mask, prefix=prefix, sink=sink)
    hidden = _Hidden(atten_mask, sparse_mode, pre_tockens, next_tockens)
    if layout == "TND":
        check_unset(pse=pse)
        check_known("softmax_layout", softmax_layout, ("", "TND"))
        of_sequences = _of_sequences(query, key, value, scale, hidden, actual_seq_qlen, actual_seq_kvlen)
        result, state, drawn = _joined(of_sequences, by_place=bool(softmax_layout))
    else:
        tensors = _split(layout, query, key, value, head_num)
        result, *state = _attention(*tensors, scale, hidden, pse)
        drawn = result.shape[0] * result.shape[1] * result.shape[2] * tensors[1].shape[2]
        placed = result.permute(*("BNS".index(letter) for letter in _HEADS[layout]), 3)
        result = placed.flatten(2) if layout.endswith("H") else placed
    largest, total = (each.expand(*each.shape[:-1], COPIES) for each in state)
    return result, largest, total, query.new_empty(0), 0, 0, drawn


class _Hidden:
    """Which keys a query does not see: what atten_mask, sparse_mode and its two limits say together."""

    def __init__(self, mask: Tensor | None, mode: int, before: int, after: int) -> None:
        self._mask = None if mask is None else mask.bool()
        self._mode, self._before, self._after = mode, before, after

    def of(self, rows: int, columns: int) -> Tensor | None:
        """The mask of so many queries and keys. Without atten_mask all keys are seen, whatever the mode."""
        if self._mask is None:
            return None
        if self._mode > 1:
            # As much of the triangle as so many places take.
            extent = max(rows, columns)
            shape, corner = (COMPRESSED, COMPRESSED), self._mask[:extent, :extent]
            if self._mask.shape != shape or not torch.equal(corner, torch.ones_like(corner).triu(1)):
                wanted = f"the upper triangle of {list(shape)}"
                raise NoReference(f"sparse_mode={self._mode} with an atten_mask that is not {wanted}")
            limits = {2: (_UNLIMITED, 0), 3: (_UNLIMITED, 0), 4: (self._before, self._after)}[self._mode]
            device = self._mask.device
            return references.band_mask(rows, columns, *limits, from_end=self._mode > 2, device=device)
        mask = self._mask
        check_shapes(
            mask.dim() > 1 and mask.shape[-2] >= rows and mask.shape[-1] >= columns,
            f"atten_mask of shape {list(mask.shape)}",
            f"{rows} rows and {columns} columns",
        )
        mask = mask[..., :rows, :columns]
        if self._mode or (self._before >= rows and self._after >= columns):
            return mask
        # What lies outside of the limits may be left out, and inside blocks it is not: the mask must hide it.
        outside = references.band_mask(rows, columns, self._before, self._after, device=mask.device)
        if (outside & ~mask).any():
            both = f"pre_tockens={self._before} and next_tockens={self._after}"
            raise NoReference(f"atten_mask shows keys outside of {both}: what a kernel does there is not documented")
        return mask


def _attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, hidden: _Hidden, pse: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(B, N, S, D) each."""
    rows, columns = query.shape[2], key.shape[2]
    mask = hidden.of(rows, columns)
    scores = (*query.shape[:3], columns)
    for name, each in (("atten_mask", mask), ("pse", pse)):
        if each is not None and not is_broadcast(each, scores):
            raise NoReference(f"{name} of shape {list(each.shape)}: the reference knows what is broadcast to {scores}")
    return references.attention(query, key, value, scale=scale, mask=mask, bias=pse)


def _split(layout: str, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """All three as (B, N, S, D)."""
    if layout.endswith("H"):
        check_shapes(
            query.dim() == key.dim() == value.dim() == 3 and heads > 0 and query.shape[-1] % heads == 0,
            f"query of shape {list(query.shape)} and head_num {heads}",
            f"{layout} with as many places for each head",
        )
        depth = query.shape[-1] // heads
        kept = key.shape[-1] // depth
        check_shapes(
            bool(kept) and key.shape[-1] == kept * depth and value.shape[-1] % kept == 0,
            f"key of shape {list(key.shape)} and value of shape {list(value.shape)}",
            f"heads of {depth} places",
        )
        query, key, value = (
            each.reshape(*each.shape[:2], count, -1) for each, count in ((query, heads), (key, kept), (value, kept))
        )
    found = [_HEADS[layout].index(letter) for letter in "BNS"]
    check_shapes(
        query.dim() == key.dim() == value.dim() == 4 and query.shape[found[1]] == heads,
        f"query of shape {list(query.shape)} and head_num {heads}",
        f"{layout} with that many heads",
    )
    query, key, value = (each.permute(*found, 3) for each in (query, key, value))
    return query, key, value


def _of_sequences(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    hidden: _Hidden,
    query_ends: Sequence[int] | None,
    key_ends: Sequence[int] | None,
) -> list[tuple[Tensor, Tensor, Tensor, int]]:
    """Attention of each sequence of (T, N, D), with the number of its scores."""
    check_shapes(
        query.dim() == key.dim() == value.dim() == 3 and bool(query_ends) and bool(key_ends),
        f"query of shape {list(query.shape)}, actual_seq_qlen {query_ends}, actual_seq_kvlen {key_ends}",
        "TND with the ends of all sequences",
    )
    lengths = [_lengths(ends, each.shape[0]) for ends, each in ((query_ends, query), (key_ends, key))]
    check_shapes(len(lengths[0]) == len(lengths[1]), f"{lengths[0]} and {lengths[1]}", "as many sequences")
    found = []
    places = (lengths[0], lengths[1], lengths[1])
    split = (torch.split(each, parts) for each, parts in zip((query, key, value), places, strict=True))
    for q, k, v in zip(*split, strict=True):
        if q.shape[0] and not k.shape[0]:
            raise NoReference("a sequence of queries without keys: what kernels give for it is not documented")
        if q.shape[0]:
            q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
            found.append((*_attention(q, k, v, scale, hidden), q.shape[1] * q.shape[2] * k.shape[2]))
    return found


def _lengths(ends: Sequence[int] | None, extent: int) -> list[int]:
    """Places of each sequence. Zeros at the end stand for sequences that take no part."""
    given = [int(each) for each in ends or ()]
    while given and not given[-1]:
        given.pop()
    lengths = [end - start for start, end in zip([0, *given], given, strict=False)]
    check_shapes(min(lengths, default=0) >= 0, f"ends {list(ends or ())}", "ends that rise")
    if sum(lengths) != extent:
        raise NoReference(f"sequences of {lengths} places in {extent}: what the rest gets is not documented")
    return lengths


def _joined(sequences: list[tuple[Tensor, Tensor, Tensor, int]], *, by_place: bool) -> tuple[Tensor, list[Tensor], int]:
    """Results of all sequences as (T, N, D), and their state as (T, N, 1). by_place: that is its order in memory, too;
    else a sequence has its heads one behind the other, in a tensor of that shape."""
    results, largest, totals, drawn = zip(*sequences, strict=True)
    result = torch.cat([each[0].transpose(0, 1) for each in results])
    states = (largest, totals)
    if by_place:
        return result, [torch.cat([each[0].transpose(0, 1) for each in state]) for state in states], sum(drawn)
    rows = [torch.cat([each.flatten() for each in state]) for state in states]
    return result, [each.reshape(*result.shape[:2], 1) for each in rows], sum(drawn)
