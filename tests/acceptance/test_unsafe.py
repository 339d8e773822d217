"""No record ends the process: what a kernel would not check is refused before it runs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, entries, forward, tensor

pytestmark = pytest.mark.usefixtures("forked")

GOOD = {name: entry for name, entry in entries().items() if not name.startswith(("Module", "Torch.load"))}


def integers(*values: int, dtype: str = "int64") -> dict[str, Any]:
    shown = {**tensor(len(values), dtype=dtype, requires_grad=False), "values": list(values)}
    return {**shown, "Max": max(values), "Min": min(values), "Mean": 0.0}


def plain(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


def named(record: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    return {**record, "input_kwargs": kwargs}


X, ROW = tensor(8), tensor(5)
MATRIX = tensor(3, 5)
# Each is like a call that ended a process with torch 2.13 on the CPU.
DEADLY: dict[str, dict[str, Any]] = {
    "Torch._foreach_lerp_": forward([X, X], [X, X], [], output=[X, X]),
    "Torch._foreach_addcmul_": forward([X, X], [X, X], [X, X], [], output=[X, X]),
    "Torch.segment_reduce": named(forward(MATRIX, plain("prod"), output=MATRIX), offsets=integers(100, 2**62, 7, 2)),
    "Torch.fbgemm_pack_gemm_matrix_fp16": forward(tensor(8, 0), output=X),
    "Torch.fbgemm_linear_quantize_weight": forward(tensor(5, 1, 0, 8), output=X),
    "Torch.lu_unpack": forward(tensor(6, 5), tensor(1, 0, dtype="int32"), output=MATRIX),
    "Torch.native_batch_norm": forward(
        tensor(8, 8), None, None, None, None, plain(False), plain(0.5), plain(1e-5), output=X
    ),
    "Torch.batch_norm_update_stats": forward(tensor(5, 5, 3), None, tensor(0), plain(1e-8), output=X),
    "Functional.pdist": forward(tensor(0, 3), plain(2.0), output=tensor(0)),
    "Torch.linalg.lstsq": named(forward(tensor(3, 3, 3), tensor(3, 3, 0), output=X), driver=plain("gelss")),
}


def results(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, (pytester.path / "out/results.jsonl").read_text().splitlines())
    return {line["id"].rpartition("::")[2]: line for line in lines}


def test_what_a_kernel_does_not_check_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    dump = make_dump(data={**{f"{api}.0.forward": record for api, record in DEADLY.items()}, **GOOD})
    command = [sys.executable, "-m", "pytest", "--probe-dump=dump.json", "--probe-out=out"]
    pytester.run(*command).assert_outcomes(passed=5, skipped=len(DEADLY))
    found = results(pytester)
    for api in DEADLY:
        skip = found[f"{api}.0.forward"]
        assert skip["kind"] == "unsafe arguments", skip
        assert skip["reason"].startswith(f"{dump}: {api}.0.forward: {api}: found ")


def test_an_index_out_of_range_does_not_reach_an_accelerator(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = pytester.mkdir("dump_tensor_data")
    script = pytester.makepyfile(make="import torch; torch.save(torch.tensor([0, 99]), 'dump_tensor_data/index.pt')")
    pytester.runpython(script)
    index = {**integers(0, 99), "data_name": "index.pt"}
    record = forward(index, tensor(4, 3), output=tensor(2, 3))
    make_dump(data={"Functional.embedding.0.forward": record, **GOOD}, task="tensor", dump_data_dir=str(folder))
    pytester.makeconftest("""
        class Device:
            name = "other"
            put = get = staticmethod(lambda tensor: tensor.clone())

            def call(self, function, args, kwargs):
                assert args[0].dtype.is_floating_point or args[0].max() < 99
                return function(*args, **kwargs)

        def pytest_probe_register(registry):
            registry.devices["other"] = lambda name: Device()
    """)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-out=out", "--probe-device=other")
    result.assert_outcomes(passed=5, skipped=1)
    skip = results(pytester)["Functional.embedding.0.forward"]
    assert skip["kind"] == "index out of range"
    assert "other did not run it, because an index out of range may end the process" in skip["reason"]
