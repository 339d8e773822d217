"""The table of the proof, as docs/ has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.mapping.paddle_cases import LOOSER
from benchmarks.mapping.proof import Proof
from pytest_probe.frameworks.mapping.table import packaged

PAGE = Path(__file__).parents[2] / "docs" / "mapping-paddle-torch.md"
_HEAD = """# The map between Paddle and torch, and its proof

`make mapping` writes this page. Each entry was proved: both frameworks made the same drawn calls in float64 on the CPU,
and their results and all gradients agree within 1e-12 of the output's scale, or within what the last table says.
[Paddle against torch](paddle-against-torch.md) says how the map is used.

"Worst" is the largest difference, as a share of the output's scale. An argument that is "not covered" has no
counterpart: a record that gives it is a skip.

| Paddle | torch | calls | worst | refused by one | not covered |
|---|---|--:|--:|--:|---|
"""
_LOOSE = """
These agree less closely, since Paddle's float64 kernel computes something in float32 or leaves something out:

| Paddle | within | why |
|---|--:|---|
"""


def written(proofs: Sequence[Proof]) -> str:
    return (
        _HEAD
        + "".join(_rows(proofs))
        + _LOOSE
        + "".join(f"| `{api}` | {limit:.0e} | {reason} |\n" for api, (limit, reason) in sorted(LOOSER.items()))
    )


def _rows(proofs: Sequence[Proof]) -> Iterator[str]:
    entries = packaged("paddle_torch").entries
    for proof in sorted(proofs, key=lambda each: each.api):
        entry = entries[proof.api]
        other = f"`{entry.path}`" if entry.function is None else "several"
        missing = ", ".join(proof.uncovered)
        yield f"| `{proof.api}` | {other} | {proof.calls} | {proof.worst:.0e} | {proof.refused} | {missing} |\n"
