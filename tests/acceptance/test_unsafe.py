"""No record ends the process: what a kernel would not check is refused before it runs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from tests.acceptance.conftest import DumpMaker, entries, forward, tensor
from tests.support.other_plugins import Ran

pytestmark = pytest.mark.usefixtures("forked")

GOOD = {name: entry for name, entry in entries().items() if not name.startswith(("Module", "Torch.load"))}


def integers(*values: int, dtype: str = "int64") -> dict[str, Any]:
    shown = {**tensor(len(values), dtype=dtype, requires_grad=False), "values": list(values)}
    return {**shown, "Max": max(values), "Min": min(values), "Mean": 0.0}


X, MATRIX = tensor(8), tensor(3, 5)
# Each is like a call that ended a process with torch 2.13 on the CPU; tests/frameworks/torch/test_safety.py has more.
DEADLY: dict[str, dict[str, Any]] = {
    "Torch._foreach_lerp_": forward([X, X], [X, X], [], output=[X, X]),
    "Torch.segment_reduce": {
        **forward(MATRIX, {"type": "str", "value": "prod"}, output=MATRIX),
        "input_kwargs": {"offsets": integers(100, 2**62, 7, 2)},
    },
    "Torch.lu_unpack": forward(tensor(6, 5), tensor(1, 0, dtype="int32"), output=MATRIX),
    "Functional.pdist": forward(tensor(0, 3), {"type": "float", "value": 2.0}, output=tensor(0)),
}


def test_what_a_kernel_does_not_check_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """An index out of range does not reach an accelerator."""
    torch.save(torch.tensor([0, 99]), pytester.mkdir("dump_tensor_data") / "index.pt")
    embedding = forward({**integers(0, 99), "data_name": "index.pt"}, tensor(4, 3), output=tensor(2, 3))
    data = {f"{api}.0.forward": record for api, record in (DEADLY | {"Functional.embedding": embedding}).items()}
    dump = make_dump(data={**data, **GOOD}, task="tensor")
    pytester.makeconftest("""
        class Device:
            name = "other"
            put = get = staticmethod(lambda tensor: tensor.clone())

            def call(self, function, args, kwargs):
                assert function.__name__ != "embedding" or args[0].dtype.is_floating_point or args[0].max() < 99
                return function(*args, **kwargs)

        def pytest_probe_register(registry):
            registry.devices["other"] = lambda name: Device()
    """)
    command = ("-m", "pytest", "--probe-dump=dump.json", "--probe-out=out", "--probe-device=other")
    ran = Ran(pytester.run(sys.executable, *command), pytester.path)
    ran.result.assert_outcomes(passed=5, skipped=len(data))
    found = ran.by_name
    for api in DEADLY:
        skip = found[f"{api}.0.forward"]
        assert skip["kind"] == "unsafe arguments", skip
        assert skip["reason"].startswith(f"{dump}: {api}.0.forward: {api}: found ")
    skip = found["Functional.embedding.0.forward"]
    assert skip["kind"] == "index out of range"
    assert "other did not run it, because an index out of range may end the process" in skip["reason"]
