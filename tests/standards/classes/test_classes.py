"""Every entry of classes.yaml, proved on generated calls.

The class's property holds, healthy outputs pass, and an output with one element off does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.torch.signatures import bind, canonical
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import round_to, widen
from pytest_probe.registry import Registry
from pytest_probe.standards import STANDARDS, Comparison
from pytest_probe.standards.exact import correctly_rounded, identical
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from pytest_probe.standards.noise.scales import FAR, FAR_ALONE, MANY
from pytest_probe.standards.tables import _classes
from tests.support.calls.computing import COMPUTING
from tests.support.calls.making import Call, Maker, Table
from tests.support.calls.moving import KINKS, LABELS, MOVING, RANDOM
from tests.support.proving import Asking, judged, spoiled

DTYPES = ("float32", "bfloat16", "float16")
# Lists that say how a judge reads an API's arguments and outputs; the tests of those judges prove them.
READ_BY_JUDGES = frozenset(
    "written_places only_indices distinct_indices first_of_equals second_output_selects noise_with discrete_with "
    "counts nearest_with nearest noise_of_complex bin_edges windows adaptive_windows random_with dropout "
    "channel_dropout distribution inner_dropout attention sized_by_float unscaled running_statistics eps approximate "
    "contraction divides "
    "terms_of_last_dimension terms_of_kernel terms_of_transposed_kernel terms_of_reduction terms_of_row "
    "terms_of_exponentials narrow_sums narrow_unbounded".split()
)
# Of an NVIDIA GPU: tests/check/test_kernels_of_accelerators.py, and tests/device/test_cuda.py on one.
OF_CUDA = {"narrow_forward_cuda", "narrow_backward_cuda"}
# Of matrices whose rows differ in size: tests/evidence/test_backward_stable.py.
OF_MATRICES = {"backward_stable"}
LISTS = {kind: names for kind, names in _classes().items() if kind not in READ_BY_JUDGES | OF_CUDA | OF_MATRICES}
# torch has no such API: see test_paddle_classes.py.
OF_PADDLE = frozenset(
    "gather_nd multiplex matrix_transpose maxout temporal_shift fill_diagonal_tensor scale stanh swish label_smooth "
    "increment standard_gamma class_center_sample top_p_sampling unscaled_dropout".split()
)
# torch_npu's, which is not here: tests/check/test_npu.py has a healthy kernel of each, and faults in it.
OF_NPU = frozenset(
    name for names in LISTS.values() for entry in names if (name := entry.partition("@")[0]).startswith("npu_")
) | {"fast_gelu"}
# Products of numbers with scales: tests/evidence/test_scaled_products.py plants faults in them.
OF_SCALES = {"grouped_mm", "scaled_grouped_mm", "scaled_mm"}
ENTRIES = [
    (kind, entry)
    for kind, names in sorted(LISTS.items())
    for entry in sorted(set(names))
    if entry.partition("@")[0] not in OF_PADDLE | OF_NPU | OF_SCALES
]
BACKWARD = ("exact_backward", "ties", "kinks", "narrow_backward")
# Whose verdict says nothing of values: planted faults pass.
BLIND = ("uninitialised", "random")


class Tied(Maker):
    """Makes tensors of few values, so that many are equal."""

    def x(self, *shape: int) -> torch.Tensor:
        return super().x(*shape).round()

    unit = positive = x


class Signed(Maker):
    """Makes zeros of both signs."""

    def x(self, *shape: int) -> torch.Tensor:
        values = super().x(*shape)
        return torch.copysign(torch.zeros_like(values), values)


ASKING = Asking()


@functools.cache
def checker() -> Checker:
    registry = Registry.default()
    registry.standards[ASKING.name] = ASKING
    return Checker(RunRequest(device="cpu", standard=ASKING.name, allow=("none",)), registry)


class Asked(Struct, frozen=True):
    """A call, what was asked about it, and the verdicts on its forward and backward."""

    call: Call
    comparisons: tuple[tuple[Comparison, OutputVerdict], ...]
    verdicts: tuple[Verdict, ...]

    def of(self, direction: str) -> list[tuple[Comparison, OutputVerdict]]:
        """By output the last one: a reading of its numbers may have been an error before another one counted."""
        return [*{pair[0].name: pair for pair in self.comparisons if pair[0].direction == direction}.values()]


def ask(call: Call) -> Asked:
    ASKING.asked = []
    torch.manual_seed(0)
    verdicts = checker().compare(call.function, call.function, call.args, call.kwargs, api=call.api, backward=True)
    assert "error" not in {verdict.verdict for verdict in verdicts}, [verdict.reason for verdict in verdicts]
    return Asked(call, tuple(ASKING.asked), verdicts)


def passes(verdict: OutputVerdict) -> bool:
    """Or is it a warning, since torch's own kernel rounds in steps that are not written down?"""
    return verdict.verdict == "pass" or (verdict.verdict == "warning" and OWN_KERNEL in verdict.reason)


def table_for(kind: str) -> Table:
    narrow = {"narrow_forward": COMPUTING, "narrow_backward": COMPUTING}
    special = {"random": RANDOM, "labels": LABELS, "kinks": KINKS, **narrow}
    return {**COMPUTING, **MOVING, **special.get(kind, {})}


def calls(kind: str, entry: str, dtype: str, maker: type[Maker] = Maker, rows: int = 5, cols: int = 7) -> list[Call]:
    makings = table_for(kind)[entry.partition("@")[0]]
    return [making(maker(dtype, rows, cols, 0)) for making in makings]


# Proofs: what membership of a list says of a call, in one dtype.


def exact(asked: Asked) -> None:
    """The outputs are the reference, bit for bit."""
    for comparison, _ in asked.of("forward"):
        assert identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype)).all()


def moves(asked: Asked) -> None:
    """Zeros keep their signs, and one that loses its own fails."""
    signs = 0
    for comparison, _ in asked.of("forward"):
        zeros = comparison.actual == 0
        assert np.array_equal(np.signbit(comparison.actual[zeros]), np.signbit(comparison.expected[zeros]))
        negative = zeros & np.signbit(comparison.actual)
        signs += int(negative.sum())
        if negative.any():
            unsigned = np.where(negative, np.zeros_like(comparison.actual), comparison.actual)
            assert judged(comparison, unsigned) == "error"
    assert signs


def fills(asked: Asked) -> None:
    """One number everywhere."""
    for comparison, _ in asked.of("forward"):
        assert np.unique(comparison.actual).size == 1


def exact_backward(asked: Asked) -> None:
    for comparison, _ in asked.of("backward"):
        assert identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype)).all()


def elementwise(asked: Asked) -> None:
    """One element of one input reaches at most one element of each output."""
    places = [place for place, value in enumerate(asked.call.args) if _is_float_tensor(value)]
    largest = max(asked.call.args[place].numel() for place in places)
    for place in places:
        first = _outputs(asked.call, asked.call.args)
        changed = asked.call.args[place].clone()
        if changed.numel() < largest:
            continue  # one element of a broadcast tensor reaches many
        changed.view(-1)[2] = changed.view(-1)[2] * 1.25 + 0.125
        args = (*asked.call.args[:place], changed, *asked.call.args[place + 1 :])
        for before, after in zip(first, _outputs(asked.call, args), strict=True):
            assert ((before != after) & ~(before.isnan() & after.isnan())).sum() <= 1


def _is_float_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _outputs(call: Call, args: tuple[Any, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    wide = [value.double() if _is_float_tensor(value) else value for value in args]
    copies = (value.clone() if isinstance(value, torch.Tensor) else value for value in wide)
    result = call.function(*copies, **call.kwargs)
    found = result if isinstance(result, (tuple, list)) else [result]
    return [value for value in found if isinstance(value, torch.Tensor)]


def smooth(asked: Asked) -> None:
    """Few elements, if any, move much farther in one run than in three others, of which each is of another kind; and
    none very much."""
    seen = 0
    for comparison, _ in asked.comparisons:
        if comparison.case.narrow:
            return  # whose errors are told by all runs
        kinds = [comparison.evidence.runs(kind, 4) for kind in ("perturbed", "float32", "float32_steps")]
        spreads = [stages.run_spread(comparison, list(runs)) for runs in zip(*kinds, strict=True)]
        found = [stages.pooled_spread(comparison, spread) for spread in spreads if spread is not None]
        scales = [stages.scale_of(comparison, spread) for spread in found]
        for scale in scales:
            farther = (np.maximum.reduce(scales) / scale)[comparison.expected != 0]
            assert np.count_nonzero(farther > FAR) < MANY
            assert not np.any(farther > FAR_ALONE)
            seen += 1
    assert seen


def discrete(asked: Asked) -> None:
    """Few elements lie so near an edge that another step is right."""
    comparison = asked.of("forward")[0][0]
    assert identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype)).mean() >= 0.9


def selection(asked: Asked) -> None:
    """Values of the input, or integers that say where they are."""
    given = widen(asked.comparisons[0][0].call.argument("input"))
    for comparison, _ in asked.of("forward"):
        assert comparison.actual.dtype.kind in "iu" or np.isin(widen(comparison.actual), given).all()


def ties(asked: Asked) -> None:
    """Every incoming gradient goes to some of the inputs, whole."""
    gradients = [comparison.expected for comparison, _ in asked.of("backward")]
    seeds = [seed for comparison, _ in asked.of("backward")[:1] for seed in comparison.case.incoming.values()]
    assert np.isclose(sum(map(np.sum, gradients)), sum(np.sum(widen(seed)) for seed in seeds), rtol=1e-9, atol=1e-9)


def kinks(asked: Asked) -> None:
    """Where equal values move apart the gradient changes by much, where they move alike it does not."""
    comparison = asked.of("backward")[0][0]
    size = np.abs(comparison.expected).max()
    together = [np.abs(run - comparison.expected).max() for run in comparison.evidence.perturbed(4)]
    first, *moved = (_gradient(asked.call, seed) for seed in range(5))
    assert together
    assert max(together) < 1e-4 * size
    assert max(float((other - first).abs().max()) for other in moved) > 0.1 * float(first.abs().max())


def _gradient(call: Call, seed: int) -> torch.Tensor:
    """The first argument's gradient in float64, all arguments moved a little, each element for itself; not by 0."""
    torch.manual_seed(seed)
    args = [
        (value.double() + seed * 1e-9 * torch.randn(value.shape, dtype=torch.float64)).requires_grad_()
        if _is_float_tensor(value)
        else value
        for value in call.args
    ]
    result = call.function(*args, **call.kwargs)
    return torch.autograd.grad(result.sum(), args[0])[0]


def factorisation(asked: Asked) -> None:
    """The factors' product is the matrix; of eigenvalues alone the sum is the trace."""
    matrix = widen(asked.comparisons[0][0].call.argument("input"))
    factors = [widen(comparison.actual) for comparison, _ in asked.of("forward")]
    products: dict[str, Callable[..., Any]] = {
        "svd": lambda u, s, v: (u[:, : len(s)] * s) @ v[: len(s)],
        "qr": lambda q, r: q @ r,
        "eigh": lambda w, v: (v * w) @ v.T,
        "eig": lambda w, v: v @ np.diag(w) @ np.linalg.inv(v),
        "eigvals": lambda w: matrix + (w.sum() - np.trace(matrix)),
    }
    made = products[canonical(asked.call.api)](*factors)
    assert np.allclose(made, matrix, atol=1e-4)


def random(asked: Asked) -> None:
    """Another seed gives other values."""
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        result = asked.call.function(
            *(value.clone() if isinstance(value, torch.Tensor) else value for value in asked.call.args),
            **asked.call.kwargs,
        )
        found.append(result[0] if isinstance(result, tuple) else result)
    assert not torch.equal(*found)


def own_dtype(asked: Asked) -> None:
    """NumPy's function of that name in that dtype says the same; float64's does not."""
    comparison = asked.of("forward")[0][0]
    assert np.array_equal(getattr(np, comparison.call.name)(*comparison.call.arrays), comparison.actual)
    assert not identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype)).all()


def uninitialised(asked: Asked) -> None:
    """Any values will do."""
    for comparison, _ in asked.of("forward"):
        other = replace(comparison, actual=np.ones_like(comparison.actual))
        assert STANDARDS["auto"].judge(other).verdict == "pass"


def factory(asked: Asked) -> None:
    """Other tensors make no difference to the last output."""
    other = tuple(value + 0.5 if _is_float_tensor(value) else value for value in asked.call.args)
    assert torch.equal(_outputs(asked.call, asked.call.args)[-1], _outputs(asked.call, other)[-1])


def counts_up(asked: Asked) -> None:
    """Whole steps from a whole number are exact."""
    found = getattr(torch, asked.call.api.partition(".")[2])(3, 4_000_000, 7, dtype=torch.float32)
    assert torch.equal(found.diff(), torch.full((len(found) - 1,), 7.0))


PROOFS: Mapping[str, Callable[[Asked], None]] = {
    "exact": exact,
    "exact_backward": exact_backward,
    "moves": moves,
    "fills": fills,
    "writes": exact,
    "elementwise": elementwise,
    "smooth": smooth,
    "discrete": discrete,
    "selection": selection,
    "ties": ties,
    "kinks": kinks,
    "factorisation": factorisation,
    "random": random,
    "own_dtype": own_dtype,
    "uninitialised": uninitialised,
    "factory": factory,
    "counts_up": counts_up,
}


# Casts to a dtype by name have no wider reference to be compared with.
CASTS = ("float", "half", "bfloat16")
NARROW = ("narrow_forward", "narrow_backward")
ELSEWHERE = (*NARROW, "labels")


@pytest.mark.evidence
@pytest.mark.parametrize(("kind", "entry"), [(k, e) for k, e in ENTRIES if k not in ELSEWHERE and e not in CASTS])
def test_an_entry_is_what_its_list_says(kind: str, entry: str) -> None:
    maker = {"kinks": Tied, "moves": Signed}.get(kind, Maker)
    asked = [ask(call) for dtype in DTYPES for call in calls(kind, entry, dtype, maker)]
    ran = [item for item in asked if item.verdicts[0].verdict != "skip" or item.verdicts[0].kind == "random values"]
    assert ran
    for item in ran:
        PROOFS[kind](item)
        for comparison, verdict in item.of("backward" if kind in BACKWARD else "forward"):
            label = f"{comparison.actual.dtype} {comparison.name}"
            assert passes(verdict), f"{label}: {verdict.reason}"
            if kind not in BLIND and comparison.actual.size:
                assert judged(comparison, spoiled(comparison.actual)) == "error", label


@pytest.mark.parametrize("entry", [entry for kind, entry in ENTRIES if kind == "ties"])
def test_gradients_of_equal_values_pass(entry: str) -> None:
    for dtype in DTYPES:
        for call in calls("ties", entry, dtype, Tied):
            for comparison, verdict in ask(call).of("backward"):
                assert passes(verdict), f"{dtype} {comparison.name}: {verdict.reason}"


@pytest.mark.parametrize("entry", CASTS)
def test_a_cast_is_exact(entry: str) -> None:
    values = Maker("float32", 5, 7, 0).x()
    rounded = getattr(values, entry)().double().numpy()
    assert np.array_equal(rounded, widen(round_to(values.double().numpy(), str(getattr(values, entry)().dtype)[6:])))


@pytest.fixture
def without_onednn() -> Iterator[None]:
    """On processors that compute in float16, oneDNN would take float16 convolutions from torch's own kernels."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize(("kind", "entry"), [pair for pair in ENTRIES if pair[0] in NARROW])
def test_an_entry_of_a_narrow_list_is_needed(kind: str, entry: str) -> None:
    """Without the entry a healthy output does not pass in one of the dtypes that it is for, with it none."""
    name, _, only = entry.partition("@")
    flagged = 0
    for dtype in [only] if only else DTYPES[1:]:
        for size in ((3, 5), (37, 65)):
            if flagged:
                break
            for call in calls(kind, name, dtype, Maker, *size):
                for comparison, verdict in ask(call).of(kind.removeprefix("narrow_")):
                    assert verdict.verdict == "pass", f"{dtype} {size} {comparison.name}: {verdict.reason}"
                    classes = frozenset(item for item in comparison.classes if "narrow" not in item)
                    unlisted = replace(comparison, case=replace(comparison.case, classes=classes))
                    flagged += STANDARDS["auto"].judge(unlisted).verdict != "pass"
    assert flagged


@pytest.mark.parametrize("entry", [entry for kind, entry in ENTRIES if kind == "labels"])
def test_labels_that_move_by_a_roundoff_are_none(entry: str) -> None:
    name, _, argument = entry.partition("@")
    (made,) = calls("labels", name, "float32")
    place = 2 if "cosine" in name else 1
    assert bind(made.api, made.args, made.kwargs).paths[argument] == f"input.{place}"
    moved = made.args[place].double() * (1 + 1e-9)
    wide = [value.double() for value in made.args]
    right, other = (made.function(*wide[:place], labels, *wide[place + 1 :]) for labels in (wide[place], moved))
    assert float((right - other).abs()) > 0.01 * float(right.abs())
    for comparison, verdict in ask(made).comparisons:
        assert verdict.verdict == "pass"
        assert judged(comparison, spoiled(comparison.actual)) == "error"


def test_every_entry_has_a_call() -> None:
    assert not [pair for pair in ENTRIES if pair[1].partition("@")[0] not in table_for(pair[0])]
    assert not {kind for kind, _ in ENTRIES} - PROOFS.keys() - set(ELSEWHERE)
    assert not READ_BY_JUDGES - _classes().keys()
