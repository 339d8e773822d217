"""Memory: what a record asks for is known before any is taken, and what runs out all the same is a skip."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, backward, entries, forward, tensor

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
GOOD = {name: entry for name, entry in entries().items() if not name.startswith(("Module", "Torch.load"))}


def number(value: float) -> dict[str, Any]:
    return {"type": "int" if isinstance(value, int) else "float", "value": value}


def integers(*shape: int, value: int) -> dict[str, Any]:
    return {**tensor(*shape, dtype="int64", requires_grad=False), "Max": value, "Min": value, "Mean": value}


def flag(value: bool) -> dict[str, Any]:
    return {"type": "bool", "value": value}


TERA = number(10**12)
MEGA = number(10**6)
X = tensor(3, 4)
LONG, WIDE, TALL = tensor(40_000), tensor(1, 40_000), tensor(40_000, 1)
IMAGE = tensor(1, 1, 4, 4)
# Each record says that the call gave six numbers.
GREEDY: dict[str, dict[str, Any]] = {
    "Torch.ones": forward(number(400_000_000), output=tensor(2, 3)),
    "Torch.zeros": forward(number(10**10), number(10**10), output=tensor(2, 3)),
    "Torch.full": forward([MEGA, MEGA], number(1.0), output=tensor(2, 3)),
    "Torch.eye": forward(MEGA, output=tensor(2, 3)),
    "Torch.arange": forward(number(10**15), output=tensor(2, 3)),
    "Torch.range": forward(number(0), number(1), number(1e-12), output=tensor(2, 3)),
    "Torch.linspace": forward(number(0), number(1), TERA, output=tensor(2, 3)),
    "Torch.tril_indices": forward(MEGA, MEGA, output=tensor(2, 3)),
    "Torch.hann_window": forward(TERA, output=tensor(2, 3)),
    "Torch.kron": forward(LONG, LONG, output=tensor(2, 3)),
    "Torch.outer": forward(LONG, LONG, output=tensor(2, 3)),
    "Torch.matmul": forward(TALL, WIDE, output=tensor(2, 3)),
    "Torch.add": forward(TALL, WIDE, output=tensor(2, 3)),
    "Torch.cdist": forward(TALL, TALL, output=tensor(2, 3)),
    "Torch.einsum": forward({"type": "str", "value": "i,j->ij"}, LONG, LONG, output=tensor(2, 3)),
    "Torch.cartesian_prod": forward(LONG, LONG, output=tensor(2, 3)),
    "Torch.combinations": forward(LONG, number(3), output=tensor(2, 3)),
    "Torch.meshgrid": forward(LONG, LONG, output=tensor(2, 3)),
    "Torch.block_diag": forward(TALL, WIDE, output=tensor(2, 3)),
    "Torch.diag_embed": forward(LONG, output=tensor(2, 3)),
    "Torch.cov": forward(TALL, output=tensor(2, 3)),
    "Torch.svd": forward(TALL, flag(False), output=tensor(2, 3)),
    "Torch.masked_select": forward(TALL, tensor(1, 40_000, dtype="bool"), output=tensor(2, 3)),
    "Torch.bincount": forward(integers(3, value=1), None, TERA, output=tensor(2, 3)),
    "Torch.repeat_interleave": forward(X, TERA, output=tensor(2, 3)),
    "Torch.histc": forward(X, TERA, output=tensor(2, 3)),
    "Torch.histogram": forward(X, TERA, output=tensor(2, 3)),
    "Torch.broadcast_to": forward(tensor(1), [TERA], output=tensor(2, 3)),
    "Torch.tile": forward(X, [MEGA, MEGA], output=tensor(2, 3)),
    "Torch.fft.fft": forward(X, TERA, output=tensor(2, 3)),
    "Tensor.repeat": forward(X, MEGA, MEGA, output=tensor(2, 3)),
    "Tensor.expand": forward(tensor(1), TERA, output=tensor(2, 3)),
    "Tensor.new_zeros": forward(X, [TERA], output=tensor(2, 3)),
    "Tensor.resize_": forward(X, TERA, output=tensor(2, 3)),
    "Tensor.unfold": forward(LONG, number(0), number(20_000), number(1), output=tensor(2, 3)),
    "Functional.one_hot": forward(integers(3, value=1), TERA, output=tensor(2, 3)),
    "Functional.pad": forward(X, [TERA, number(0)], output=tensor(2, 3)),
    "Functional.interpolate": forward(IMAGE, None, number(1e5), output=tensor(2, 3)),
    "Functional.adaptive_avg_pool2d": forward(IMAGE, MEGA, output=tensor(2, 3)),
    "Functional.conv2d": forward(IMAGE, IMAGE, None, number(1), MEGA, output=tensor(2, 3)),
    "Functional.unfold": forward(tensor(1, 1, 1000, 1000), number(300), output=tensor(2, 3)),
    "Functional.pdist": forward(TALL, output=tensor(2, 3)),
}


def limited(pytester: pytest.Pytester, *args: str, space: int = SPACE) -> pytest.RunResult:
    result = pytester.run(sys.executable, "-c", CHILD, str(space), "--probe-dump=dump.json", "--probe-out=out", *args)
    for line in (*result.outlines, *result.errlines):
        assert not line.startswith(("E   ", "INTERNALERROR", "Traceback")), line
    return result


def results(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, (pytester.path / "out/results.jsonl").read_text().splitlines())
    return {line["id"].rpartition("::")[2]: line for line in lines}


def test_a_call_that_asks_for_too_much_takes_nothing(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={**{f"{api}.0.forward": record for api, record in GREEDY.items()}, **GOOD})
    limited(pytester).assert_outcomes(passed=5, skipped=len(GREEDY))
    found = results(pytester)
    kinds = {api: found[f"{api}.0.forward"]["kind"] for api in GREEDY}
    assert kinds == dict.fromkeys(GREEDY, "too large")
    for api in GREEDY:
        reason = found[f"{api}.0.forward"]["reason"]
        assert "the call makes " in reason
        assert "; checking it takes about " in reason
        assert reason.endswith(" of memory that may be taken here")
    # Beyond the first, which imports, each is found in milliseconds.
    durations = sorted(found[f"{api}.0.forward"]["duration"] for api in GREEDY)
    assert durations[len(durations) // 2] < 0.1


# What takes too much, each in one place of a case: a function to call, a device, the reference, an input, a standard.
TAKES = "torch.empty(10**10)"
PLACES = {
    "device": f"""
        registry.calls["Functional.relu"] = lambda *args: {TAKES}
    """,
    "numpy": """
        registry.calls["Functional.relu"] = lambda *args: np.empty(10**10)
    """,
    "put": f"""
        class Device:
            name = "cpu"
            put = call = get = lambda self, *args: {TAKES}

        registry.devices["cpu"] = lambda name: Device()
    """,
    "reference": f"""
        registry.references["Functional.relu"] = lambda *args: {TAKES}
    """,
    "standard": """
        class Standard:
            name = "auto"
            judge = lambda self, comparison: np.empty(10**10)

        registry.standards["auto"] = Standard()
    """,
}


@pytest.mark.parametrize("place", PLACES)
def test_memory_that_runs_out_is_a_skip(pytester: pytest.Pytester, make_dump: DumpMaker, place: str) -> None:
    x = tensor(2, 3)
    data = {"Functional.relu.0.forward": forward(x, output=x), "Functional.relu.0.backward": backward(x, x)}
    make_dump(data={**data, "Functional.gelu.0.forward": forward(x, output=x)})
    pytester.makeconftest("import numpy as np\nimport torch\n\ndef pytest_probe_register(registry):" + PLACES[place])
    limited(pytester)
    found = results(pytester)
    for name in data:
        assert (found[name]["verdict"], found[name]["kind"]) == ("skip", "out of memory"), found[name]
        assert "memory ran out (" in found[name]["reason"]
    if place not in ("put", "standard"):  # these are used by every case
        assert found["Functional.gelu.0.forward"]["verdict"] == "pass"


def test_what_was_taken_is_given_back(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Each case takes most of the space and then more than there is: the next one takes as much again."""
    x = tensor(2, 3)
    make_dump(data={f"Functional.relu.{number}.forward": forward(x, output=x) for number in range(4)})
    pytester.makeconftest("""
        import torch

        def greedy(x):
            held = torch.empty(500_000_000)
            print("took", held.numel())
            return torch.empty(10**10)

        def pytest_probe_register(registry):
            registry.calls["Functional.relu"] = greedy
    """)
    result = limited(pytester, "-s")
    result.assert_outcomes(skipped=4)
    assert result.stdout.str().count("took 500000000") == 4


def test_inputs_that_do_not_fit(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """The address space's limit counts, not only the machine's memory."""
    large = tensor(10**9)
    make_dump(data={"Functional.gelu.0.forward": forward(large, output=large), **GOOD})
    limited(pytester).assert_outcomes(passed=5, skipped=1)
    found = results(pytester)["Functional.gelu.0.forward"]
    assert found["kind"] == "too large"
    assert "; checking the call takes about 24.0 GB, more than the " in found["reason"]
