from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.state import allowed


def test_flags_that_a_cpu_reads() -> None:
    assert list(allowed("cpu")) == []
    torch.set_flush_denormal(True)
    try:
        assert list(allowed("cpu")) == ["ftz"]
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "conv"), reason="torch before 2.9 has no such flags")
@pytest.mark.parametrize(
    ("matmul", "convolution", "expected"),
    [
        ("bf16", "none", ["bf16 in matmul"]),
        ("none", "bf16", ["bf16 in convolution"]),
        ("tf32", "tf32", ["tf32"]),
        ("tf32", "bf16", ["tf32 in matmul", "bf16 in convolution"]),
        ("ieee", "none", []),
    ],
)
def test_precisions_of_onednn_are_modes_of_the_cpu(matmul: str, convolution: str, expected: list[str]) -> None:
    mkldnn: Any = torch.backends.mkldnn
    mkldnn.matmul.fp32_precision, mkldnn.conv.fp32_precision = matmul, convolution
    try:
        assert list(allowed("cpu")) == expected
    finally:
        mkldnn.matmul.fp32_precision = mkldnn.conv.fp32_precision = "none"


@pytest.fixture
def _flags() -> Iterator[None]:
    """torch's TF32 flags, which no monkeypatch can put back."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("_flags")
def test_cudas_flags_count_on_cuda_only() -> None:
    torch.backends.cudnn.allow_tf32 = True
    assert next(allowed("cuda")) == "tf32 in convolution"
    torch.backends.cuda.matmul.allow_tf32 = True
    assert next(allowed("cuda")) == "tf32"
    assert list(allowed("cpu")) == []
    assert list(allowed("npu")) == []


def test_ascends_flags_are_read_where_its_plugin_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = SimpleNamespace(matmul=SimpleNamespace(allow_hf32=False), conv=SimpleNamespace(allow_hf32=True))
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=switches))
    assert list(allowed("npu")) == ["hf32 in convolution"]
    assert list(allowed("cpu")) == []
