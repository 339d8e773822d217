"""A large call that can be cut is judged by drawn places and those left open, and faults are found as in the whole."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from benchmarks.large_faults import changed
from pytest_probe import inputs
from pytest_probe.check import Checker, RunRequest, judging
from pytest_probe.check.large import cuts, pieces
from pytest_probe.check.large.cuts import Cut
from pytest_probe.check.large.pieces import Pieces
from pytest_probe.errors import TooLarge
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.registry import Registry
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from pytest_probe.standards.noise.stages import BETWEEN_STEPS, STEPS
from tests.support.gradients import with_gradient
from tests.support.large_calls import cut_small_calls, outputs

Tensor = torch.Tensor
SHAPE = 512, 64
DTYPES, DEVICES = ("float32", "bfloat16", "float16"), ("cpu", "npu")


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small_calls(monkeypatch)


def numbers(dtype: str, *shape: int, seed: int = 0) -> Tensor:
    found = torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed))
    return found.to(getattr(torch, dtype))


def row(x: Tensor) -> Tensor:
    return torch.linspace(0.5, 1.5, SHAPE[1], dtype=x.dtype, device=x.device)


CUT: dict[str, Callable[[Tensor], Tensor]] = {
    "elements": lambda x: F.gelu(x),
    "elements and a row": lambda x: x * row(x),
    "rows of softmax": lambda x: F.softmax(x, -1),
    "columns of softmax": lambda x: F.softmax(x, 0),
    "rows of a norm": lambda x: F.layer_norm(x, SHAPE[1:]),
    "channels of a norm": lambda x: F.batch_norm(x, None, None, training=True),
    "columns of a running sum": lambda x: x.cumsum(0),
    "columns in another order": lambda x: x.flip(0),
    "rows of a product": lambda x: x @ torch.eye(SHAPE[1], dtype=x.dtype, device=x.device).flip(0),
}


def check_healthy(found: dict[str, OutputVerdict], granted: str | None) -> None:
    """All pass, but for warnings with the words that are granted."""
    others = {output.verdict: output.reason for output in found.values() if output.verdict != "pass"}
    assert others == {} or (granted is not None and others.keys() == {"warning"} and granted in others["warning"])


@pytest.mark.evidence
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CUT)
def test_a_healthy_call_passes(name: str, dtype: str, device: str) -> None:
    found = outputs(CUT[name], CUT[name], [numbers(dtype)], device, backward=True)
    # torch's own 16-bit batch_norm rounds its statistics on the CPU.
    check_healthy(found, OWN_KERNEL if (name, device) == ("channels of a norm", "cpu") and dtype != "float32" else None)
    assert found["output.0"].shape == SHAPE


@pytest.mark.parametrize("name", CUT)
def test_the_result_says_what_share_was_sampled(name: str) -> None:
    found = outputs(CUT[name], CUT[name], [numbers("float32")], backward=True)
    names = ["output.0", "grad.input.0"] if name in ("elements", "rows of softmax", "rows of a norm") else ["output.0"]
    assert all(0 < found[each].metrics["sampled"] <= 0.5 for each in names)  # type: ignore[operator]


WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "by the largest of all": lambda x: x / x.abs().max(),
    "running sum of all": lambda x: x.flatten().cumsum(0).reshape(x.shape),
    "neighbours on both sides": lambda x: x + x.roll((1, 1), (0, 1)),
    "lower triangle": lambda x: x.tril(),
    "by the number of rows": lambda x: x / x.numel(),
    "the first row and column": lambda x: torch.cat([x[:1], x[1:] * 2])[:, :1] + x,
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_hangs_on_other_places_is_judged_in_full(name: str) -> None:
    found = outputs(WHOLE[name], WHOLE[name], [numbers("float32")])["output.0"]
    assert (found.verdict, "sampled" in found.metrics) == ("pass", False)


def test_metrics_are_those_of_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = outputs(CUT["rows of softmax"], CUT["rows of softmax"], [numbers("float32")])["output.0"].metrics
    monkeypatch.setattr(cuts, "LARGE", 2**40)
    whole = outputs(CUT["rows of softmax"], CUT["rows of softmax"], [numbers("float32")])["output.0"].metrics
    same = ("max_abs", "max_rel", "max_ulp", "mismatch", "nonfinite_mismatch")
    assert {name: sampled[name] for name in same} == {name: whole[name] for name in same}
    assert sampled["mean_ulp"] == pytest.approx(whole["mean_ulp"], rel=1e-12)


FRAMEWORKS: dict[str, tuple[Callable[..., Tensor], list[Any]]] = {
    "gelu": (F.gelu, []),
    "softmax": (F.softmax, [-1]),
    "a norm with a weight": (F.layer_norm, [SHAPE[1:], torch.ones(SHAPE[1])]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_any_number_of_threads_gives_the_same_verdicts(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, (function, further) = [], FRAMEWORKS[name]
    given = [value.to(getattr(torch, dtype)) if isinstance(value, Tensor) else value for value in further]
    for cores in (1, 2, 5):
        monkeypatch.setattr(pieces, "usable_cores", lambda cores=cores: cores)
        before = torch.get_num_threads(), torch.get_default_dtype()
        found.append(outputs(function, function, [numbers(dtype), *given], backward=True))
        assert (torch.get_num_threads(), torch.get_default_dtype()) == before
    assert found[0] == found[1] == found[2]
    assert "sampled" in found[0]["output.0"].metrics


@pytest.mark.parametrize(("function", "several"), [(F.gelu, True), (CUT["elements"], False)])
def test_only_the_frameworks_own_functions_run_in_several_threads(
    function: Callable[..., Tensor], several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()
    of_pieces = Pieces._piece
    monkeypatch.setattr(pieces, "usable_cores", lambda: 2)

    def piece(*given: Any) -> Any:
        threads.add(threading.get_ident())
        return of_pieces(*given)

    monkeypatch.setattr(Pieces, "_piece", piece)
    outputs(function, function, [numbers("float32")])
    assert (threads != {threading.get_ident()}) is several


Call = tuple[Callable[..., Any], list[Tensor]]


def sums(dtype: str) -> dict[str, Call]:
    """Calls with results that all rows add to."""
    x, weight = numbers(dtype), numbers(dtype, SHAPE[1], seed=1)
    targets = torch.randint(SHAPE[1], SHAPE[:1], generator=torch.Generator().manual_seed(2))
    ids = torch.randint(SHAPE[0], (2048,), generator=torch.Generator().manual_seed(3))
    return {
        "a norm's weight": (lambda x, w: F.layer_norm(x, SHAPE[1:], w), [x, weight]),
        "a broadcast argument": (torch.add, [x, weight]),
        "a product's weight": (F.linear, [x, numbers(dtype, 32, SHAPE[1], seed=4)]),
        "an embedding's weight": (F.embedding, [ids, x]),
        "a sum": (lambda x: x.sum(), [x.abs()]),
        "a mean of losses": (F.cross_entropy, [x, targets]),
        "a sum of losses": (lambda x, y: F.mse_loss(x, y, reduction="sum"), [x, numbers(dtype, seed=5)]),
    }


@pytest.mark.evidence
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sums("float32"))
def test_healthy_sums_over_pieces_pass(name: str, dtype: str, device: str) -> None:
    function, given = sums(dtype)[name]
    found = outputs(function, function, given, device, backward=True)
    # torch's own 16-bit losses round inside on the CPU.
    own = name.endswith("of losses") and device == "cpu" and dtype != "float32"
    check_healthy(found, OWN_KERNEL if own else None)


def wrong_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with gradients of 16 and 32 bit that are 5 % too large."""

    def wrong(*given: Tensor) -> Any:
        narrow = [x.is_floating_point() and x.dtype is not torch.float64 for x in given]
        scaled = [with_gradient(x, lambda y: y * 1.05) if each else x for x, each in zip(given, narrow, strict=True)]
        return function(*scaled)

    return wrong


@pytest.mark.evidence
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sums("float32"))
def test_a_wrong_gradient_of_sums_is_found(name: str, dtype: str, device: str) -> None:
    function, given = sums(dtype)[name]
    found = outputs(wrong_gradients(function), function, given, device, backward=True)
    wrong = [output.verdict for name, output in found.items() if name.startswith("grad.")]
    assert "error" in wrong
    assert "pass" not in wrong


def healthy_step(x: Tensor, y: Tensor) -> Tensor:
    return x.mul_(0.9).add_(y, alpha=0.1)


def wrong_step(x: Tensor, y: Tensor) -> Tensor:
    found = healthy_step(x, y)
    found[400, 3] *= 1.001
    return found


def writing(x: Tensor, y: Tensor) -> Tensor:
    y[500] = 0
    return x * 2


def twice(x: Tensor, y: Tensor) -> Tensor:
    return x * 2


def ignoring(*places: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A mean over some rows alone."""

    def call(x: Tensor, y: Tensor) -> Tensor:
        targets = y.argmax(1)
        targets[list(places)] = -100
        return F.cross_entropy(x, targets)

    return call


# Functions of two tensors, what the device has in float32 in their place, and the outputs that are then wrong.
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[str]]] = {
    "a changed argument": (healthy_step, healthy_step, []),
    "one element of a changed argument": (healthy_step, wrong_step, ["output.0"]),
    "an argument that only the device changes": (twice, writing, ["input.1"]),
    "a mean without a row": (ignoring(100), ignoring(100), []),
    "a mean without two rows": (ignoring(300, 511), ignoring(300, 511), []),
    "a mean": (ignoring(), lambda x, y: ignoring()(x, y) * 1.001, ["output.0"]),
    "a sum": (lambda x, y: x.abs().sum(), lambda x, y: x.abs().sum() * 1.001, ["output.0"]),
    "a sum of losses": (F.mse_loss, lambda x, y: F.mse_loss(x, y) * 1.001, ["output.0"]),
    "transposed": (twice, lambda x, y: x.T * 2, ["output.0"]),
    "another dtype": (twice, lambda x, y: (x * 2).to(torch.int32), ["output.0"]),
    "a row less": (twice, lambda x, y: (x * 2)[:-1], ["output.0"]),
    "a gradient that only the device gives": (lambda x, y: x * y.detach(), lambda x, y: x * y, ["grad.input.1"]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_wrong_output_is_named(name: str) -> None:
    right, device, wrong = PAIRS[name]

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (right if x.dtype is torch.float64 else device)(x, y)

    given = [numbers("float32"), numbers("float32", seed=1)]
    found = outputs(function, right, given, backward="gradient" in name)
    assert [each for each, output in found.items() if output.verdict != "pass"] == wrong
    if device is wrong_step:
        assert found["output.0"].worst[0].index == (400, 3)
    if device is healthy_step:
        assert "sampled" in found["output.0"].metrics


def test_copies_are_compared_bit_for_bit() -> None:
    def wrong(x: Tensor) -> Tensor:
        return (
            changed((509, 63), lambda right: torch.nextafter(right, torch.tensor(9.0)))(x)
            if x.dtype is torch.float32
            else x
        )

    for function, verdict in ((torch.clone, "pass"), (wrong, "error")):
        assert outputs(function, torch.clone, [numbers("float32")], api="Torch.clone")["output.0"].verdict == verdict


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_device_rounds_a_python_float_or_does_not(dtype: str) -> None:
    def rounds(x: Tensor, factor: float) -> Tensor:
        return x * factor if x.dtype is torch.float64 else x * torch.tensor(factor, dtype=x.dtype)

    for function in (rounds, torch.mul):
        found = outputs(function, torch.mul, [numbers(dtype), 0.1])["output.0"]
        assert (found.verdict, "sampled" in found.metrics) == ("pass", True)


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one element": changed((301, 33), lambda right: right + 0.25 * right.abs().max()),
    "one element, NaN": changed((301, 33), lambda right: math.nan),
    "one element, inf": changed((301, 33), lambda right: math.inf),
    "the last 7 elements": changed((-1, slice(-7, None)), torch.zeros_like),
    "one row, 5 % too large": changed(301, lambda right: right * 1.05),
    "a stale row": lambda right: changed(301, lambda _: right[300])(right),
    "a tile": changed((slice(64, 96), slice(16, 48)), lambda right: right * 1.05),
    "all": lambda right: right * 1.02,
    "a tail": changed(slice(-16, None), torch.zeros_like),
}


@pytest.mark.evidence
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["elements", "rows of softmax", "rows of a norm"])
def test_a_fault_in_rows_that_are_not_drawn_is_found(name: str, fault: str, dtype: str, device: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        right = CUT[name](x)
        return right if x.dtype is torch.float64 else FAULTS[fault](right)

    assert outputs(wrong, CUT[name], [numbers(dtype)], device)["output.0"].verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_shift_of_a_part_of_an_ulp_is_found(dtype: str, device: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        right = F.gelu(x)
        if x.dtype is torch.float64:
            return right
        up = torch.nextafter(right, torch.full((), math.inf, dtype=right.dtype))
        return torch.where(torch.arange(x.numel(), device=x.device).reshape(x.shape) % 2 == 0, up, right)

    assert outputs(wrong, F.gelu, [numbers(dtype)], device)["output.0"].verdict == "error"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_gradient_that_known_steps_give_bit_for_bit_is_not_run_in_full(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging.Judging, "_in_full", lambda *_: pytest.fail("runs in full"))
    found = outputs(F.embedding, F.embedding, sums(dtype)["an embedding's weight"][1], backward=True)["grad.input.1"]
    assert (found.verdict, found.metrics["scale_from"]) == ("pass", BETWEEN_STEPS)
    assert 0 < found.metrics["sampled"] < 1  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_beside_known_steps_is_found(fault: str, dtype: str) -> None:
    def wrong(ids: Tensor, x: Tensor) -> Tensor:
        return F.embedding(ids, x if x.dtype is torch.float64 else with_gradient(x, FAULTS[fault]))

    given = sums(dtype)["an embedding's weight"][1]
    assert outputs(wrong, F.embedding, given, backward=True)["grad.input.1"].verdict == "error"


def test_windows_of_rows_have_some_places_of_each_row_but_where_columns_are_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts, "PIECE", 10)
    monkeypatch.setattr(cuts, "LARGEST_PIECE", 96)
    cut = Cut(40, {"input.0": 1}, {})
    for rows, wanted in ((2, 16), (8, 12), (200, 1)):
        first, *_ = cut.windows({"input.0": np.empty((rows, 40))})
        assert first == slice(0, wanted)
    first, *_ = replace(cut, leaves={"input.0": 0}).windows({"input.0": np.empty((40, 2))})
    assert first == slice(0, 5)


def test_a_row_that_is_off_counts_in_the_limits_as_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, SHAPE[1:])

    def wrong(x: Tensor) -> Tensor:
        return norm(x if x.dtype is torch.float64 else with_gradient(x, changed(301, lambda right: right * 1.01)))

    limits = []
    for large in (2**14, 2**40):
        monkeypatch.setattr(cuts, "LARGE", large)
        found = outputs(wrong, norm, [numbers("bfloat16")], backward=True)["grad.input.0"]
        limits.append(found.metrics["noise_ratio_limit"])
    assert limits[0] == pytest.approx(limits[1], rel=0.1)
    assert limits[0] < STEPS.largest / 2  # type: ignore[operator]


def test_a_sample_tells_where_the_whole_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Tensor) -> Tensor:
        return x * 2 if x.dtype is torch.float64 else x * 2.001

    monkeypatch.setattr(inputs, "available_memory", lambda *_: 2**16)
    for function, verdict in ((lambda x: x * 2, "pass"), (wrong, "error")):
        found = outputs(function, lambda x: x * 2, [numbers("float32")])["output.0"]
        assert (found.verdict, found.shape, "sampled" in found.metrics) == (verdict, SHAPE, True)


def _few(*values: float) -> Tensor:
    x = torch.zeros(1024, 1024)
    x[3, 5 : 5 + len(values)] = torch.tensor(values)
    return x


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (torch.any, numbers("float32", 1024, 1024) > 100),
        (torch.argmax, _few(1.5, 2.5)),
        (torch.amax, _few(1.5, 2.5)),
        (lambda x: torch.tril(x, -40), numbers("float32", 1024, 1024)),
        (lambda x: torch.triu(x, -40), numbers("float32", 1024, 1024)),
    ],
    ids=["any", "argmax", "amax", "tril", "triu"],
)
def test_windows_that_show_nothing_of_a_call_fail_no_healthy_one(
    function: Any, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all further runs of the whole would not fit into memory."""
    monkeypatch.setattr(inputs, "available_memory", lambda *_: 2 * 10**8)

    def wrong(x: Tensor) -> Tensor:
        found = function(x)
        return found if x.dtype is torch.float64 else ~found if found.dtype is torch.bool else found + 1

    checker = Checker(RunRequest(device="cpu"), Registry.default())
    for tested, verdict in ((function, "pass"), (wrong, "error")):
        (found,) = checker.compare(tested, function, [x])
        assert found.verdict == verdict, found.reason


@pytest.mark.parametrize("places", [slice(100, 400), slice(-300, None)])
def test_windows_lie_where_numbers_are(places: slice) -> None:
    x = torch.zeros(SHAPE[0] * SHAPE[1])
    x[places] = numbers("float32").flatten()[places]
    found = outputs(lambda x: x * 0.5, lambda x: x * 0.5, [x])["output.0"]
    assert (found.verdict, "sampled" in found.metrics) == ("pass", True)


def test_a_reference_that_refuses_some_places_is_asked_in_full() -> None:
    def refuses(x: Tensor) -> Tensor:
        if x.dtype is torch.float64 and (x == 7).any():
            raise ValueError("7 is none of mine")
        return x * 2

    x = numbers("float32")
    x[77, 7] = 7
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    (found,) = checker.compare(lambda x: x * 2, refuses, [x])
    assert (found.verdict, found.kind) == ("skip", "no reference")
    assert "7 is none of mine" in found.reason


def stepping(by: float, add: float = 1.0) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """An optimizer's step that counts in a tensor of one element."""

    def step(x: Tensor, gradient: Tensor, count: Tensor) -> Tensor:
        count.add_(add)
        return x.sub_(gradient * by)

    return step


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("function", "wrong"),
    [(stepping(0.1), []), (stepping(0.1, 2.0), ["input.2"]), (stepping(0.1001), ["output.0"])],
    ids=["healthy", "counts twice", "another step"],
)
def test_a_count_that_is_written_to_may_stand_beside_what_is_cut(
    function: Callable[..., Tensor], wrong: list[str], device: str
) -> None:
    given = [numbers("float32"), numbers("float32", seed=1), torch.ones(1)]
    found = outputs(function, stepping(0.1), given, device)
    assert [name for name, output in found.items() if output.verdict != "pass"] == wrong
    assert wrong or "sampled" in found["output.0"].metrics


def scaling(x: Tensor, overflow: Tensor) -> Tensor:
    """Says in a tensor of one element whether any number is inf."""
    overflow.add_(x.isinf().any())
    return x.mul_(0.5)


def test_a_flag_that_hangs_on_all_elements_is_no_sum_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the whole is too large, a healthy device is no error."""

    def too_large(*_: Any) -> Any:
        raise TooLarge("too large")

    x = numbers("float32")
    x[5, 5] = x[400, 7] = math.inf
    assert all(output.verdict == "pass" for output in outputs(scaling, scaling, [x, torch.zeros(1)]).values())
    monkeypatch.setattr(judging.Judging, "_in_full", too_large)
    assert outputs(scaling, scaling, [x, torch.zeros(1)]) == {}


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "warning"), (1.02, "error")])
@pytest.mark.parametrize("own", [True, False])
def test_the_bits_of_torchs_own_kernel_are_those_of_the_whole(
    own: bool, factor: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no vector holds is rounded inside: in the columns that are drawn it would be others."""

    def too_large(*_: Any) -> Any:
        raise TooLarge("too large")

    def softmax(x: Tensor) -> Tensor:
        return F.softmax(x, 0)

    monkeypatch.setattr(judging.Judging, "_in_full", too_large)
    monkeypatch.setattr(pieces, "DRAWN", 2**14)
    x = numbers("bfloat16", 37, 1003)
    function = torch.softmax if own else softmax
    given = [x, 0] if own else [x]
    scaled = (lambda *args: function(*args) * factor) if factor != 1 else function
    (found,) = outputs(scaled, function, given).values()
    assert (found.verdict, "sampled" in found.metrics) == (verdict, True)


def test_a_pieces_incoming_gradient_lies_in_no_more_memory_than_it_has() -> None:
    cut = Cut(64, {"input.0": 1}, {"output.0": 1})
    found = cut.incoming_at({"output.0": np.ones((32, 64))}, slice(4, 8))["output.0"]
    assert (found.shape, found.flags.c_contiguous) == ((32, 4), True)


HEADS = 2, 64, 16, 16


def attention(places: tuple[Any, ...] | None, of: int = 0) -> Callable[..., Tensor]:
    """Attention, with a fault in some places of the output (0), or of what it sees of an argument."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        given, wrong = [q, k, v], places is not None and q.dtype is not torch.float64
        if wrong and of:
            factor = torch.ones_like(k)
            factor[places] = 1.01
            given[of] = given[of] * factor
        found = F.scaled_dot_product_attention(given[0], given[1], given[2])
        if wrong and not of:
            found = found.clone()
            found[places] *= 1.01
        return found

    return call


PLACES: dict[str, tuple[Any, ...]] = {
    "a head": (1, 17),
    "a row": (0, 5, 3),
    "the last head": (slice(None), -1),
    "a tail": (slice(None), slice(None), slice(-2, None)),
}


@pytest.mark.parametrize("of", range(3))
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_in_a_part_of_attention_is_found(place: str, of: int) -> None:
    given = [numbers("float32", *HEADS, seed=seed) for seed in range(3)]
    api = "Functional.scaled_dot_product_attention"
    wrong, right = attention(PLACES[place], of), attention(None)
    found = outputs(wrong, right, given, api=api, backward=True)
    assert "error" in {output.verdict for output in found.values()}
    healthy = outputs(right, right, given, api=api, backward=True)
    assert {output.verdict for output in healthy.values()} == {"pass"}
    assert all(0 < output.metrics["sampled"] <= 0.5 for output in healthy.values())  # type: ignore[operator]
