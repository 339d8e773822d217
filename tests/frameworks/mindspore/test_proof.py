"""Each entry of the map between MindSpore and torch, proved on MindSpore's CPU."""

from __future__ import annotations

import pytest

from pytest_probe import frameworks
from tests.support.installed import needs_mindspore

pytestmark = [pytest.mark.mindspore, needs_mindspore, pytest.mark.slow]
if not frameworks.unavailable("mindspore"):
    from benchmarks.mapping.entries import MINDSPORE, proof_of, proofs
    from pytest_probe.frameworks.mapping import Mapping
    from pytest_probe.frameworks.mapping.table import Table, packaged


def test_all_entries_hold() -> None:
    assert [(proof.api, proof.troubles) for proof in proofs(lambda api: True, MINDSPORE) if not proof.holds] == []


@pytest.mark.parametrize(
    ("api", "call"),
    [
        ("mindspore.ops.leaky_relu", "torch.nn.functional.leaky_relu(input negative_slope/alpha=0.01)"),
        ("mindspore.ops.var", "torch.var(input dim/axis=None correction/ddof=1 keepdim/keepdims=False)"),
        ("mindspore.ops.smooth_l1_loss", "torch.nn.functional.smooth_l1_loss(input target beta=1.0 reduction='mean')"),
    ],
)
def test_a_wrong_default_is_refused(api: str, call: str) -> None:
    table = Table("mindspore", "torch", {**packaged(MINDSPORE.map).entries, api: Mapping(call)}, {})
    assert "differs" in proof_of(api, table, MINDSPORE.both(), MINDSPORE).troubles[0]


def test_what_is_said_to_have_no_kernel_and_has_one_is_refused() -> None:
    from msgspec.structs import replace

    subject = replace(MINDSPORE, how=lambda api: replace(MINDSPORE.how(api), kernel=False))
    proof = proof_of("mindspore.ops.sin", packaged(subject.map), subject.both(), subject)
    assert proof.troubles == ("it has a kernel: prove it as all others are",)
