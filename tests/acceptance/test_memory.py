"""Memory: what a record asks for is known before any is taken, and what runs out all the same is a skip."""

from __future__ import annotations

import sys

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor
from tests.support.other_plugins import Ran

if sys.platform != "linux":
    pytest.skip("an address space's limit, and how much is taken, as Linux says them", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("forked")
# pytest with no more than so many further bytes of address space.
CHILD = """
import resource, sys
from pathlib import Path
import numpy, pytest, torch

taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[1]),) * 2)
sys.exit(pytest.main(sys.argv[2:]))
"""
SPACE = 3 << 30


NUMBER = {"type": "int", "value": 10**12}
TALL, WIDE = tensor(40_000, 1), tensor(1, 40_000)
# Each record says that the call gave six numbers. tests/frameworks/torch/test_sizes.py knows what more calls take.
GREEDY = {
    "Torch.zeros": forward({"type": "int", "value": 10**10}, {"type": "int", "value": 10**10}, output=tensor(2, 3)),
    "Torch.linspace": forward(NUMBER, NUMBER, NUMBER, output=tensor(2, 3)),
    "Torch.matmul": forward(TALL, WIDE, output=tensor(2, 3)),
    "Torch.fft.fft": forward(tensor(3, 4), NUMBER, output=tensor(2, 3)),
    "Tensor.unfold": forward(
        tensor(40_000), *({"type": "int", "value": size} for size in (0, 20_000, 1)), output=tensor(2, 3)
    ),
}


def limited(pytester: pytest.Pytester, *args: str) -> Ran:
    result = pytester.run(sys.executable, "-c", CHILD, str(SPACE), "--probe-dump=dump.json", "--probe-out=out", *args)
    for line in (*result.outlines, *result.errlines):
        assert not line.startswith(("E   ", "INTERNALERROR", "Traceback")), line
    return Ran(result, pytester.path)


# What takes too much, each in one place of a case: a function to call, its reference, a standard.
PLACES = """
    import numpy as np
    import torch

    from pytest_probe.standards import STANDARDS

    def greedy(x):
        held = torch.empty(500_000_000)
        print("took", held.numel())
        return torch.empty(10**10)

    class Standard:
        name = "auto"

        def judge(self, comparison):
            return np.empty(10**10) if comparison.actual.ndim == 1 else STANDARDS["auto"].judge(comparison)

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = greedy
        registry.calls["Functional.elu"] = lambda *args: np.empty(10**10)
        registry.references["Functional.silu"] = lambda *args: torch.empty(10**10)
        registry.standards["auto"] = Standard()
"""
PUT = """
    import torch

    class Device:
        name = "cpu"
        put = call = get = lambda self, *args: torch.empty(10**10)

    def pytest_probe_register(registry):
        registry.devices["cpu"] = lambda name: Device()
"""


def ran_out(found: Ran) -> set[str]:
    rows = found.by_name.items()
    names = {name for name, row in rows if (row["verdict"], row["kind"]) == ("skip", "out of memory")}
    assert all("memory ran out (" in row["reason"] for name, row in rows if name in names)
    return names


def test_what_asks_for_too_much_takes_nothing_and_memory_that_runs_out_is_given_back(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """What asks for it is skipped: the address space's limit counts, not only the machine's memory. Each case of relu
    takes most of the space and then more than there is: the next one takes as much again."""
    x, row = tensor(2, 3), tensor(3)
    data = {f"Functional.relu.{number}.forward": forward(x, output=x) for number in range(4)}
    data |= {f"Functional.{api}.0.forward": forward(x, output=x) for api in ("elu", "silu")}
    data |= {f"Functional.{api}.0.backward": backward(x, x) for api in ("relu", "elu", "silu")}
    data |= {"Functional.softplus.0.forward": forward(row, output=row)}
    large = forward(tensor(10**9), output=tensor(10**9))
    greedy = {**GREEDY, "Torch.tanh": large}
    healthy = {"Functional.gelu.0.forward": forward(x, output=x)}
    make_dump(data={**{f"{api}.0.forward": record for api, record in greedy.items()}, **data, **healthy})
    pytester.makeconftest(PLACES)
    found = limited(pytester, "-s")
    for api in greedy:
        row = found.by_name[f"{api}.0.forward"]
        assert row["kind"] == "too large"
        if api == "Torch.tanh":
            assert "; checking the call takes about 24.0 GB, more than the " in row["reason"]
        else:
            assert "the call makes " in row["reason"]
            assert "; checking it takes about " in row["reason"]
            assert row["reason"].endswith(" of memory that may be taken here")
    assert ran_out(found) == data.keys()
    assert found.by_name["Functional.gelu.0.forward"]["verdict"] == "pass"
    # A forward and its backward share a run.
    assert found.result.stdout.str().count("took 500000000") >= 4


def test_a_device_that_takes_no_tensor_skips(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    x = tensor(2, 3)
    make_dump(data={"Functional.relu.0.forward": forward(x, output=x), "Functional.relu.0.backward": backward(x, x)})
    pytester.makeconftest(PUT)
    assert len(ran_out(limited(pytester))) == 2
