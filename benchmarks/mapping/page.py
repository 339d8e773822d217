"""The tables of the proofs, as docs/ has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.mapping import mindspore_cases, paddle_cases
from benchmarks.mapping.entries import PADDLE, Subject
from benchmarks.mapping.proof import Proof
from pytest_probe.frameworks.mapping.table import packaged

_DOCS = Path(__file__).parents[2] / "docs"
_PADDLE = """# The map between Paddle and torch, and its proof

`make mapping` writes this page. Each entry was proved: both frameworks made the same drawn calls in float64 on the CPU,
and their results and all gradients agree within 1e-12 of the output's scale, or within what the last table says.
[Paddle against torch](paddle-against-torch.md) says how the map is used.
"""
_MINDSPORE = """# What MindSpore's functions correspond to in torch, and the proof

`make mapping-mindspore` writes this page. [Dumps of MindSpore](dumps.md#dumps-of-mindspore) says how the map is used.
Functions of `mindspore.mint` and methods of tensors that are not below have torch's names. Each entry was proved on
MindSpore 2.10.0: both frameworks made the same drawn calls in float64 on the CPU, and their results and all gradients
agree within 1e-12 of the output's scale, or within what the last table says. Of those with 0 calls the CPU has no
kernel: these entries say what MindSpore's documentation says.
"""
_HEAD = """
"Worst" is the largest difference, as a share of the output's scale. An argument that is "not covered" has no
counterpart: a record that gives it is a skip.

| {own} | torch | calls | worst | refused by one | not covered |
|---|---|--:|--:|--:|---|
"""
_LOOSE = """
These agree less closely, since {own}'s float64 kernel computes something in float32{further}:

| {own} | within | why |
|---|--:|---|
"""


def page_of(subject: Subject) -> Path:
    return _DOCS / f"mapping-{subject.map.replace('_', '-')}.md"


def written(proofs: Sequence[Proof], subject: Subject = PADDLE) -> str:
    if subject is PADDLE:
        own, top, looser, further = "Paddle", _PADDLE, paddle_cases.LOOSER, " or leaves something out"
    else:
        own, top, looser, further = "MindSpore", _MINDSPORE, mindspore_cases.LOOSER, " or does not exist"
    return (
        top
        + _HEAD.format(own=own)
        + "".join(_rows(proofs, subject))
        + _LOOSE.format(own=own, further=further)
        + "".join(f"| `{api}` | {limit:.0e} | {reason} |\n" for api, (limit, reason) in sorted(looser.items()))
    )


def _rows(proofs: Sequence[Proof], subject: Subject) -> Iterator[str]:
    entries = packaged(subject.map).entries
    for proof in sorted(proofs, key=lambda each: each.api):
        entry = entries[proof.api]
        other = f"`{entry.path}`" if entry.function is None else "several"
        missing = ", ".join(proof.uncovered) if proof.calls else ""
        yield f"| `{proof.api}` | {other} | {proof.calls} | {proof.worst:.0e} | {proof.refused} | {missing} |\n"
