"""How fast the search is, and how it compares with arrays that hypothesis draws element by element.

python -m benchmarks.fuzz_speed            examples a second of CPU time
python -m benchmarks.fuzz_speed peers      examples to each planted fault, beside hypothesis.extra.numpy
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benchmarks.fuzzing.faults import FAULTS, Fault
from benchmarks.fuzzing.running import BOTH, checker, found, search, seeded, trials
from pytest_probe.check import Checker
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf

SMALL = ("Torch.exp", "Functional.relu", "Torch.add", "Functional.softmax", "Torch.sum", "Functional.embedding")
EXAMPLES, SEEDS = 200, 11


def speeds() -> None:
    """Examples a second, the first hundred of a process apart."""
    print(f"{'operator':<24} {'forward':>8} {'backward':>9}   examples a second of CPU time")
    rates: dict[str, list[float]] = {"forward": [], "both": []}
    for api in SMALL:
        for name, directions in (("forward", BOTH[:1]), ("both", BOTH)):
            search(checker(), api, "float32", 100, 0, directions)
            started = time.process_time()
            examples = search(checker(), api, "float32", EXAMPLES, 1, directions).examples
            rates[name].append(examples / (time.process_time() - started))
        print(f"{api:<24} {rates['forward'][-1]:>8.0f} {rates['both'][-1]:>9.0f}", flush=True)
    print(f"{'median':<24} {statistics.median(rates['forward']):>8.0f} {statistics.median(rates['both']):>9.0f}")


def element_wise(fault: Fault) -> st.SearchStrategy[Arguments]:
    """Calls as somebody writes them with hypothesis.extra.numpy: a shape, and each element."""
    dtype, width = np.dtype(fault.dtype), 16 if fault.dtype == "float16" else 32
    elements: Any = st.floats(width=width)  # type: ignore[arg-type]

    def arrays(shape: Any) -> st.SearchStrategy[np.ndarray[Any, Any]]:
        return hnp.arrays(dtype, shape, elements=elements)

    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=16)

    @st.composite
    def drawn(draw: Callable[[Any], Any]) -> Arguments:
        name = fault.api.rpartition(".")[2]
        if name in ("linear", "embedding"):
            rows, inner, outer = (draw(st.integers(1, 16)) for _ in range(3))
            weight = Leaf(draw(arrays((outer, inner))))
            index = hnp.arrays(np.int64, rows, elements=st.integers(0, outer - 1))
            first = Leaf(draw(index if name == "embedding" else arrays((rows, inner))))
            return Arguments((first, weight), {}, ())
        values = draw(arrays(draw(shapes)))
        if name == "mul":
            return Arguments((Leaf(values), Leaf(draw(arrays(values.shape)))), {}, ())
        if name in ("softmax", "log_softmax", "sum"):
            return Arguments((Leaf(values), draw(st.integers(-values.ndim, values.ndim - 1))), {}, ())
        return Arguments((Leaf(values),), {}, ())

    return drawn()


def peer(fault: Fault, seed: int) -> int | None:
    """Examples that element-wise strategies need to find a fault; None where EXAMPLES are not enough."""
    faulty: Checker = checker(fault.api, fault.kernel)
    judging = trials(faulty, fault.api, ("forward",))
    tried: list[bool] = []

    def example(arguments: Arguments) -> None:
        if any(tried):
            return
        args = tuple(_spec(value) for value in arguments.args)
        call = Call(args, {}, None, (), surroundings=Surroundings())
        tried.append(judging.judged(call, arguments).failing is not None)

    settings = hypothesis.settings(
        max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    with seeded(seed):
        settings(hypothesis.given(element_wise(fault))(example))()
    return len(tried) if tried and tried[-1] else None


def _spec(value: Any) -> Any:
    return TensorSpec(value.array.dtype.name, value.array.shape) if isinstance(value, Leaf) else value


def peers() -> None:
    """The median of examples to each fault, of all seeds: one that does not find it needs more than EXAMPLES."""
    print(f"{'fault':<26} {'search':>14} {'element-wise':>14} {'times':>6}   examples (seeds that find it)")
    times: list[float] = []
    for fault in FAULTS:
        ours = [each.found_after or math.inf for each in found(fault, "cpu", range(SEEDS), EXAMPLES)]
        theirs = [peer(fault, seed) or math.inf for seed in range(SEEDS)]
        least, most = statistics.median_low(ours), statistics.median_low(theirs)
        times.append(most / least if least < math.inf else 0.0)
        print(f"{fault.name:<26} {_shown(ours):>14} {_shown(theirs):>14} {times[-1]:>6.1f}", flush=True)
    print(f"{'median':<26} {'':>14} {'':>14} {statistics.median(times):>6.1f}")


def _shown(counts: Sequence[float]) -> str:
    hits, middle = sum(count < math.inf for count in counts), statistics.median_low(counts)
    return f"{f'{middle:.0f}' if middle < math.inf else f'over {EXAMPLES}'} ({hits}/{SEEDS})"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    peers() if "peers" in sys.argv else speeds()
