"""What required grad, grad mode, autocast and layout as recorded: the kernel that the program ran is the one judged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct
from torch.profiler import profile

from pytest_probe import capture
from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.check.conftest import Make as Bench
from tests.check.conftest import failed, judged, normal
from tests.support.devices import Emulated
from tests.support.gradients import with_gradient

Function = Callable[..., Any]


def kernels(call: Callable[[], object]) -> list[str]:
    """What torch's profiler saw of a call, in its order."""
    with profile() as profiler:
        call()
    return [event.name for event in profiler.events() if event.name.startswith(("aten::", "mkldnn"))]


@dataclass
class Profiled(Emulated):
    """Keeps for each call the kernels that ran, the arguments, and what it gave."""

    name: str = "profiled"
    seen: list[list[str]] = field(default_factory=list)
    given: list[tuple[Any, ...]] = field(default_factory=list)
    wrong: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any] = lambda result, args, kwargs: result

    def __post_init__(self) -> None:
        super().__init__(self.name)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def call(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found: list[Any] = []
        self.seen.append(kernels(lambda: found.append(function(*args, **kwargs))))
        self.given.append((*args, *kwargs.values()))
        return self.wrong(found[0], args, kwargs)


class Probe(Struct):
    """A dump of one call of a program, and the device that it is checked on."""

    dump: Dump
    device: Profiled
    repeat: int = 1

    def check(self, *, backward: bool = False, dtype: str | None = None) -> list[Verdict]:
        registry = Registry.default()
        registry.devices["profiled"] = lambda name: self.device
        checker = Checker(RunRequest(device="profiled", repeat=self.repeat), registry)
        kept: CaseOutcome | None = None
        found = []
        for direction in ("forward", "backward")[: 1 + backward]:
            kept = checker.run(Case(self.dump, self.dump.records[0], direction, dtype), kept)  # type: ignore[arg-type]
            found.append(kept.verdict)
        return found


Make = Callable[..., Probe]


@pytest.fixture
def probe(tmp_path: Path) -> Make:
    """probe(call): the dump of what `call` does; its result goes backward where it can and `backward` is asked for."""

    def make(call: Callable[[], Any], *, backward: bool = False, **options: Any) -> Probe:
        with capture(tmp_path / "dumps", task="tensor"):  # some kernels hang on the values
            result = call()
            if backward:
                result.backward(torch.ones_like(result))
        (path,) = (tmp_path / "dumps").glob("step0/*/dump.json")
        return Probe(read_dump(path), Profiled(**options))

    return make


def symmetric(size: int) -> torch.Tensor:
    half = normal(size, size)
    return half + half.T


def attention(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


WORDS = torch.tensor([[1, 2], [3, 4]])
ALWAYS, IN_GRAD_MODE = (True, False), (True,)
# Every API found whose kernels hang on which argument requires grad (of those in benchmarks and cases, on the CPU):
# the call, its tensors, the one that decides, and the grad modes in which it does.
DECIDED: dict[str, tuple[Function, tuple[torch.Tensor, ...], int, tuple[bool, ...]]] = {
    "Functional.scaled_dot_product_attention": (attention, (normal(2, 4, 64, 32), normal(64, 64)), 1, ALWAYS),
    "Functional.embedding_bag": (lambda w: F.embedding_bag(WORDS, w, mode="sum"), (normal(10, 3),), 0, ALWAYS),
    "Functional.max_pool1d": (lambda x: F.max_pool1d(x, 2), (normal(2, 3, 8),), 0, IN_GRAD_MODE),
    "Torch.linalg.eigvalsh": (torch.linalg.eigvalsh, (symmetric(4),), 0, IN_GRAD_MODE),
    "Torch.linalg.eigvals": (torch.linalg.eigvals, (normal(4, 4),), 0, IN_GRAD_MODE),
    "Torch.matmul": (torch.matmul, (normal(4, 5), normal(2, 5, 3)), 0, ALWAYS),
    "Functional.linear": (F.linear, (normal(3, 2, 4).transpose(0, 1), normal(5, 4), normal(5)), 1, ALWAYS),
}
STATES = list(itertools.product(DECIDED, (True, False), (True, False)))


def marked(tensors: Sequence[torch.Tensor], marks: Sequence[bool]) -> list[torch.Tensor]:
    return [tensor.detach().requires_grad_(mark) for tensor, mark in zip(tensors, marks, strict=True)]


def states(api: str, mark: bool, grad: bool) -> Iterator[tuple[Callable[[], Any], Any]]:
    """The call in this state, and in the one with the other mark."""
    function, tensors, decides, _ = DECIDED[api]
    for each in (mark, not mark):
        given = marked(tensors, [place == decides and each for place in range(len(tensors))])

        def call(given: Sequence[torch.Tensor] = given) -> Any:
            with torch.set_grad_enabled(grad):
                return function(*given)

        yield call, given


@pytest.mark.parametrize(("api", "mark", "grad"), STATES)
def test_what_required_grad_decides_which_kernel_is_judged(api: str, mark: bool, grad: bool, probe: Make) -> None:
    (call, _), (other, _) = states(api, mark, grad)
    ran = kernels(call)
    assert (ran != kernels(other)) is (grad in DECIDED[api][3])  # else it has no place in the list
    made = probe(call)
    assert made.dump.records[0].name.startswith(api)
    (verdict,) = made.check()
    assert (verdict.verdict, made.device.seen) == ("pass", [ran])


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_recorded_gradient_needs_choose_the_kernel_in_another_dtype_too(dtype: str, probe: Make) -> None:
    q, mask = normal(2, 4, 64, 32).requires_grad_(), normal(64, 64)
    made = probe(lambda: attention(q, mask), backward=True)
    assert [verdict.verdict for verdict in made.check(dtype=dtype)] == ["pass"]
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in made.device.seen[0]


@pytest.mark.parametrize("repeat", [1, 3])
def test_the_gradient_of_what_required_none_is_a_second_run(repeat: int, probe: Make) -> None:
    q, mask = normal(2, 4, 64, 32).requires_grad_(), normal(64, 64)
    made = probe(lambda: attention(q, mask), backward=True)
    made.repeat = repeat
    forward, backward = made.check(backward=True)
    assert (forward.verdict, backward.verdict) == ("pass", "pass"), backward.reason
    assert judged(backward) == ["grad.input.0", "grad.input.1", "grad.input.2", "grad.kwargs.attn_mask"]
    flash = ["_scaled_dot_product_flash_attention_for_cpu" in " ".join(each) for each in made.device.seen]
    # The forward repeats the first run; the backward repeats both.
    assert sorted(flash) == [False] * repeat + [True] * (2 * repeat - 1)


def test_all_that_required_grad_is_one_run(probe: Make) -> None:
    x, weight = normal(3, 4).requires_grad_(), normal(5, 4).requires_grad_()
    made = probe(lambda: F.linear(x, weight), backward=True)
    assert [each.verdict for each in made.check(backward=True)] == ["pass", "pass"]
    assert len(made.device.seen) == 1


@pytest.mark.parametrize("of_mask", [False, True])
def test_a_wrong_gradient_of_either_run_is_found(of_mask: bool, probe: Make) -> None:
    def wrong(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        off = kwargs["attn_mask"].requires_grad is of_mask
        return with_gradient(result, lambda gradient: gradient * 1.1) if off else result

    q, mask = normal(2, 4, 64, 32).requires_grad_(), normal(64, 64)
    made = probe(lambda: attention(q, mask), backward=True, wrong=wrong)
    forward, backward = made.check(backward=True)
    assert forward.verdict == "pass"
    wanted = {"grad.kwargs.attn_mask"} if of_mask else {"grad.input.0", "grad.input.1", "grad.input.2"}
    assert failed(backward).keys() == wanted


@pytest.mark.parametrize("mark", [True, False])
def test_a_device_that_gives_no_gradient_in_one_of_the_runs_fails(mark: bool, probe: Make) -> None:
    def wrong(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return result.detach() if args[1].requires_grad is mark else result

    x, y = normal(4).requires_grad_(), normal(4, seed=1)
    _, backward = probe(lambda: torch.mul(x, y), backward=True, wrong=wrong).check(backward=True)
    assert backward.verdict == "error"
    assert "can be differentiated" in backward.reason


class _Needing(torch.autograd.Function):
    """As attention that keeps for its backward what a query that requires grad needs, and has nothing else there."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.kept = query.requires_grad
        return query + mask

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not ctx.kept:
            raise RuntimeError("LSE is not correctly aligned (strideH)")
        return gradient, gradient


def test_what_requires_grad_stays_so_where_further_gradients_are_asked_for(probe: Make) -> None:
    x, mask = normal(4).requires_grad_(), normal(4, seed=1)
    made = probe(lambda: torch.add(x, mask), backward=True, wrong=lambda result, args, kwargs: _Needing.apply(*args))
    backward = made.check(backward=True)[1]
    assert (backward.verdict, judged(backward)) == ("pass", ["grad.input.0", "grad.input.1"]), backward.reason


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("no gradient of a bias"), NotImplementedError("none of a bias")])
@pytest.mark.parametrize("asked", [True, False])
def test_a_device_may_refuse_gradients_that_the_program_did_not_ask_for(
    early: bool, error: Exception, asked: bool, probe: Make
) -> None:
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            if early and bias.requires_grad:
                raise error
            return x + bias

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            if ctx.needs_input_grad[1]:
                raise error
            return gradient, None

    def refusing(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return Refusing.apply(*args)

    x, bias = normal(4).requires_grad_(), normal(4, seed=1).requires_grad_(asked)
    backward = probe(lambda: torch.add(x, bias), backward=True, wrong=refusing).check(backward=True)[1]
    if asked:
        assert backward.verdict == ("error" if type(error) is RuntimeError else "skip")
        return
    assert (backward.verdict, judged(backward)) == ("pass", ["grad.input.0"]), backward.reason
    assert any(
        note.startswith("gradients that the program did not ask for are not judged: ") for note in backward.notes
    )


def test_outputs_that_hang_on_what_required_none(probe: Make) -> None:
    tensors = [normal(3).requires_grad_(), normal(3, seed=1)]
    factors = [normal(3, seed=2), normal(3, seed=3)]
    made = probe(lambda: torch._foreach_mul(tensors, factors)[0], backward=True)
    assert [each.verdict for each in made.check(backward=True)] == ["pass", "pass"]


@pytest.mark.parametrize("grad", [True, False])
def test_a_call_in_place_on_what_required_grad(grad: bool, probe: Make) -> None:
    leaf = normal(6).requires_grad_()
    x = leaf * 2 if grad else leaf

    def call() -> Any:
        with torch.set_grad_enabled(grad):
            return x.mul_(3)

    (verdict,) = probe(call).check()
    assert verdict.verdict == "pass", verdict.reason


@pytest.mark.parametrize("grad", [True, False])
def test_grad_mode_is_recorded(grad: bool, probe: Make) -> None:
    def call() -> Any:
        with nullcontext() if grad else torch.no_grad():
            return torch.ones(3).mul(2)

    made = probe(call)
    modes: list[bool] = []

    def wrong(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        modes.append(torch.is_grad_enabled())
        return result

    made.device.wrong = wrong
    assert (made.check()[0].verdict, modes) == ("pass", [grad])


def test_a_call_under_autocast_runs_the_recorded_kernels(probe: Make) -> None:
    x, weight = normal(2, 3, 4), normal(5, 4).requires_grad_()

    def call() -> Any:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            return F.linear(x, weight)

    made = probe(call)
    assert (made.check()[0].verdict, made.device.seen[-1]) == ("pass", kernels(call))


@pytest.mark.parametrize("view", [slice(1, None), slice(3, 7), slice(None, None, 2)])
@pytest.mark.parametrize("call", [torch.add, torch.Tensor.add_])
def test_recorded_views_keep_alignment_and_strides(view: slice, call: Function, probe: Make) -> None:
    x = normal(40, 3)[view]
    made = probe(lambda: call(x, 1.0))
    assert made.check()[0].verdict == "pass"
    (given,) = made.device.given
    assert (given[0].data_ptr() - x.data_ptr()) % 64 == 0
    assert given[0].stride() == x.stride()


@pytest.mark.parametrize("seed", range(4))
def test_the_cpu_beside_a_device_takes_the_state_that_the_device_takes(seed: int, bench: Bench) -> None:
    """A weight of classes is refused if it requires grad, as a dump of a run without grad may tell of it. The CPU's
    own loss, whose sum is one of 16-bit numbers, explains the same one of another device all the same."""
    logits, target, weight = normal(64, 64).half(), torch.arange(64), normal(64).abs().half()
    registry = Registry.default()
    registry.devices["other"] = Emulated
    made = bench(
        "Functional.cross_entropy", F.cross_entropy, logits, target, weight=weight, reduction="sum",
        registry=registry, request={"device": "other", "seed": seed},
    )  # fmt: skip
    verdict = made.check()
    assert verdict.verdict == "pass", verdict.reason
