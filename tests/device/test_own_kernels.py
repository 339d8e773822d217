"""A kernel author's checks with that accelerator as the device under test."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.device import pretend
from tests.device.conftest import ROOT
from tests.device.test_check import LOADED

TESTS = """
    import torch
    from torch.nn.functional import gelu, linear

    class Stays(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).cpu()

    def mine(x):
        return gelu(x.cpu().float()).to(x.dtype).to(x.device)

    def test_there(probe):
        x = probe.tensor((4, 8), "bfloat16", layout="transposed")
        assert probe.device == x.device.type == {name!r}
        probe.check(mine, reference=gelu, inputs=x, backward=True)

    def test_left_on_the_host(probe):
        probe.check(lambda x: mine(x).cpu(), reference=gelu, inputs=probe.tensor((4, 8), "bfloat16"))

    def test_meant_for_the_host(probe):
        probe.check(lambda x: mine(x).cpu(), reference=lambda x: gelu(x).cpu(), inputs=probe.tensor((4, 8)))

    def test_wide(probe):
        probe.check(lambda x: mine(x).float(), reference=gelu, inputs=probe.tensor((4, 8), "bfloat16"))

    def test_reference_of_the_host(probe):
        x = probe.tensor((4, 8), "bfloat16")
        probe.check(mine, reference=lambda x: gelu(x.cpu()), inputs=x)

    def test_module(probe):
        module = torch.nn.Linear(8, 4)
        probe.check(module, reference=module, inputs=probe.tensor((3, 8)), backward=True)

    def test_module_left_on_the_host(probe):
        probe.check(Stays(8, 4), reference=torch.nn.Linear(8, 4), inputs=probe.tensor((3, 8)))
"""


def test_outputs_must_lie_on_the_device_in_a_worker_too(pytester: pytest.Pytester, library: Path) -> None:
    pytester.makeconftest(LOADED.format(root=str(ROOT), library=str(library)))
    pytester.makepyfile(test_mine=dedent(TESTS.format(name=pretend.NAME)))
    result = pytester.runpytest_subprocess("-rf", "-n1")
    failed = sorted(line.split("::")[-1] for line in result.outlines if line.startswith("FAILED"))
    assert [line.partition(" ")[0] for line in failed] == [
        "test_left_on_the_host",
        "test_module_left_on_the_host",
        "test_wide",
    ]
    result.stdout.fnmatch_lines(["E*it is on cpu, but the call ran on*", f"E*{pretend.NAME}"])
