"""Calls of torch_npu: stored outputs of a dump, faults in them, replays on a device, and what is a skip."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.check.conftest import Make, failed
from tests.support.checking import verdicts
from tests.support.npu_dumps import ENTRIES, Kernel, named, write
from tests.support.npu_kernels import EXAMPLES, KERNELS, mapped, normal


def recorded(folder: Path, entries: Mapping[str, Kernel | None]) -> dict[str, Verdict]:
    found = verdicts(write(folder / "dump", entries), device="recorded")
    return {name.rpartition("::")[2]: verdict for name, verdict in found.items()}


def test_stored_outputs_of_a_healthy_device_pass(tmp_path: Path) -> None:
    found = recorded(tmp_path, dict.fromkeys(ENTRIES))
    assert {name: verdict.reason for name, verdict in found.items() if verdict.verdict != "pass"} == {}
    assert found.keys() == ENTRIES.keys()


def with_kwargs(**changed: Any) -> Callable[[Kernel], Kernel]:
    """A kernel that computes with another value of some arguments."""
    return lambda kernel: lambda *args, **kwargs: kernel(*args, **{**kwargs, **changed})


def with_args(change: Callable[..., Sequence[Any]]) -> Callable[[Kernel], Kernel]:
    """A kernel that computes with other positional arguments."""
    return lambda kernel: lambda *args, **kwargs: kernel(*change(*args), **kwargs)


def then(change: Callable[[torch.Tensor], torch.Tensor], place: int = 0) -> Callable[[Kernel], Kernel]:
    """A kernel whose output at a place is changed."""

    def planted(kernel: Kernel) -> Kernel:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            found = kernel(*args, **kwargs)
            outputs = list(found) if isinstance(found, (list, tuple)) else [found]
            outputs[place] = change(outputs[place])
            return outputs

        return wrong

    return planted


def one_element(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def changed(tensor: torch.Tensor) -> torch.Tensor:
        found = tensor.clone()
        found.view(-1)[3] = found.view(-1)[3] * (1 + by) + by * 1e-3
        return found

    return changed


def without_head(tensor: torch.Tensor) -> torch.Tensor:
    """The first head of four, of (B, S, N, D)."""
    found = tensor.clone()
    found[:, :, 0] = 0
    return found


def other_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> Sequence[Any]:
    """Heads take keys in turn, not in blocks."""
    return (query, *(each.repeat(1, 1, 2, 1) for each in (key, value)), *rest)


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    first, second = tensor.chunk(2, -1)
    return torch.cat((second, first), -1)


DISTANCE = KERNELS["npu_diou"]
BIAS = EXAMPLES["attention with a bias"].kwargs["pse"]
# By call the faults of its kernel, in words.
FAULTS: Mapping[str, Mapping[str, Callable[[Kernel], Kernel]]] = {
    "rms_norm": {
        "another eps": with_kwargs(epsilon=1e-5),
        "an element": then(one_element(1e-3)),
        "the root mean square, not its inverse": then(torch.reciprocal, 1),
    },
    "rms_norm of two dimensions": {"the default eps": with_kwargs(epsilon=1e-6)},
    "add_rms_norm": {
        "one summand": with_args(lambda x, y, *rest: (x, 0 * y, *rest)),
        "a sum": then(one_element(1e-3), 2),
    },
    "swiglu": {"swapped halves": with_args(lambda x: (swapped(x),)), "relu": then(torch.relu)},
    "rotary": {
        "neighbours for halves": with_kwargs(rotary_mode="interleave"),
        "swapped halves": with_args(lambda x, cos, sin: (swapped(x), cos, sin)),
        "turned back": with_args(lambda x, cos, sin: (x, cos, -sin)),
    },
    "rotary of neighbours": {"halves for neighbours": with_kwargs(rotary_mode="half")},
    "scaled_masked_softmax": {
        "another scale": with_args(lambda x, mask, scale, fixed: (x, mask, scale * 1.001, fixed)),
        "a mask off by one": with_args(lambda x, mask, *rest: (x, mask.roll(1, -1), *rest)),
    },
    "attention BSND": {
        "another scale": with_kwargs(scale=0.3001),
        "a dropped head": then(without_head),
        "the largest score of another row": then(lambda each: each.roll(1, 2), 1),
        "a sum without its first term": then(lambda each: each - 1, 2),
    },
    "attention of grouped heads": {"heads in turn": with_args(other_heads)},
    "attention with a bias": {"a bias behind the scale": with_kwargs(pse=BIAS.float() / 0.3)},
    "attention causal from the first": {"from the last": with_kwargs(sparse_mode=3)},
    "attention causal from the last": {
        "from the first": with_kwargs(sparse_mode=2),
        "a mask off by one": with_kwargs(sparse_mode=4, next_tockens=1),
    },
    "attention with a band from the last": {"a band off by one": with_kwargs(pre_tockens=2)},
    "attention of sequences": {"another border": with_kwargs(actual_seq_qlen=[5, 9])},
    "grouped_matmul of rows": {"another border": with_kwargs(group_list=[3, 5, 9])},
    "grouped_matmul": {"no bias": with_kwargs(bias=None)},
    "gating": {
        "one expert for another": then(lambda each: each.roll(1, -1), 1),
        "weights that add up to one": then(lambda each: each / each.sum(-1, keepdim=True)),
        "rows in their own order": then(lambda each: each.flatten().sort().values.reshape(each.shape), 2),
    },
    "gating with finished rows": {"finished rows take experts": with_args(lambda x, finished, k: (x, None, k))},
    "linear": {"no bias": with_args(lambda x, weight, bias: (x, weight)), "an element": then(one_element(1e-3))},
    "bmm": {"an element": then(one_element(1e-3))},
    "fast_gelu": {"gelu": with_args(lambda x: (x * 1.001,))},
    "mish": {"silu": lambda kernel: F.silu},
    "group_norm_silu": {
        "swapped groups": with_args(lambda x, gamma, beta, *rest: (x, gamma.roll(2), beta, *rest)),
        "no silu": lambda kernel: lambda x, *rest: (F.group_norm(x, 3, *rest[:2]), *kernel(x, *rest)[1:]),
    },
    "layer_norm": {
        "no weight and bias": with_args(lambda x, shape, weight, bias: (x, shape)),
        "the default eps": with_kwargs(eps=1e-5),
    },
    "adam": {"a power of the next step": with_args(lambda one, two, *rest: (one * 0.9, two * 0.999, *rest))},
    "adamw": {"no decay": with_args(lambda one, two, lr, decay, *rest: (one, two, lr, 0.0, *rest))},
    "giou": {"the distance for the enclosing box": lambda kernel: lambda *boxes, **named: DISTANCE(*boxes, **named).T},
    "ciou": {"without the ratio of sides": lambda kernel: DISTANCE},
}  # fmt: skip
# The same in 16 bit: faults that are larger than what its roundings explain.
NARROW_FAULTS = (
    ("rms_norm", "the root mean square, not its inverse"),
    ("swiglu", "swapped halves"),
    ("rotary", "swapped halves"),
    ("scaled_masked_softmax", "a mask off by one"),
    ("attention BSND", "a dropped head"),
    ("attention causal from the last", "a mask off by one"),
    ("attention of sequences", "another border"),
    ("grouped_matmul of rows", "another border"),
    ("gating", "one expert for another"),
    ("linear", "no bias"),
    ("group_norm_silu", "swapped groups"),
    ("layer_norm", "no weight and bias"),
)


@pytest.mark.evidence
@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "fault", "narrow"),
    [
        *((call, fault, False) for call, faults in FAULTS.items() for fault in faults),
        *((call, fault, True) for call, fault in NARROW_FAULTS),
    ],
)
def test_a_fault_in_stored_outputs_is_an_error(tmp_path: Path, call: str, fault: str, narrow: bool) -> None:
    kernel = FAULTS[call][fault](KERNELS[EXAMPLES[call].name])
    [verdict] = recorded(tmp_path, {named(call, narrow=narrow): kernel}).values()
    assert (verdict.verdict, verdict.kind) == ("error", "")


def device(name: str, kernel: Kernel | None = None) -> Registry:
    """A registry whose device computes an operator by a kernel."""
    registry = Registry.default()
    registry.calls[f"NPU.{name}"] = kernel or KERNELS[name]
    return registry


def cast(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    _, args, kwargs = EXAMPLES[name]
    return mapped((args, kwargs), lambda each: each.to(dtype) if each.is_floating_point() else each.clone())


REPLAYED = [
    *("rms_norm", "add_rms_norm", "swiglu", "rotary", "rotary of neighbours", "scaled_masked_softmax", "linear", "bmm"),
    *("attention BSND", "attention SBH", "attention with a bias", "attention with a mask", "attention with a band"),
    *("attention causal from the last", "attention of sequences", "grouped_matmul of rows", "gating", "fast_gelu"),
    *("group_norm_silu", "layer_norm", "giou"),
]


@pytest.mark.parametrize("name", REPLAYED)
def test_a_healthy_device_passes_on_drawn_inputs(bench: Make, name: str) -> None:
    """Of statistics alone: masks and groups are such as the operator takes."""
    api = EXAMPLES[name].name
    args, kwargs = cast(name, torch.float32)
    gradients = name not in ("gating", "grouped_matmul of rows", "giou")
    found = bench(
        f"NPU.{api}", KERNELS[api], *args, registry=device(api), edit=_backward if gradients else None, **kwargs
    )
    for direction in ("forward", "backward")[: 1 + gradients]:
        verdict = found.check(direction)
        assert (verdict.verdict, verdict.reason) == ("pass", ""), direction


def _backward(data: dict[str, Any]) -> None:
    """With the gradient of the first output, as msprobe records it."""
    [name] = data
    body = data[name]
    gradient = {**body["output"][0], "Max": 3.0, "Min": -3.0, "Mean": 0.0, "Norm": None}
    data[name.replace("forward", "backward")] = {"input": [gradient, *[None] * (len(body["output"]) - 1)], "output": []}


def detached(place: int, factor: float) -> Callable[[Kernel], Kernel]:
    """A kernel whose gradient of an argument is wrong by a factor."""

    def planted(kernel: Kernel) -> Kernel:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            moved = list(args)
            moved[place] = args[place] * factor + (args[place] * (1 - factor)).detach()
            return kernel(*moved, **kwargs)

        return wrong

    return planted


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *product(["rms_norm", "rotary", "attention BSND"], [1]),
        *product(["swiglu", "scaled_masked_softmax"], [0]),
        ("attention BSND", 2),
    ],
)
def test_a_wrong_gradient_is_an_error(bench: Make, name: str, place: int) -> None:
    api = EXAMPLES[name].name
    args, kwargs = cast(name, torch.float32)
    registry = device(api, detached(place, 1.01)(KERNELS[api]))
    found = bench(f"NPU.{api}", KERNELS[api], *args, registry=registry, edit=_backward, **kwargs)
    assert found.check("forward").verdict == "pass"
    assert failed(found.check("backward")) == {f"grad.input.{place}": "noise"}


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_state_that_is_written_in_place_is_judged(bench: Make, name: str) -> None:
    api = EXAMPLES[name].name
    args, kwargs = cast(name, torch.float32)
    assert bench(f"NPU.{api}", KERNELS[api], *args, registry=device(api), **kwargs).check().verdict == "pass"

    def forgets(*args: Any, out: Sequence[torch.Tensor], **kwargs: Any) -> Any:
        return KERNELS[api](*args, out=[each.clone() for each in out], **kwargs)

    verdict = bench(f"NPU.{api}", KERNELS[api], *args, registry=device(api, forgets), **kwargs).check()
    assert set(failed(verdict)) == {f"kwargs.out.{place}" for place in range(3)}


def test_a_kernel_that_rounds_its_weights_passes_in_16_bit(bench: Make) -> None:
    """As flash attention does; one that drops a key does not."""
    args, kwargs = cast("attention BSND", torch.bfloat16)

    def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any) -> Any:
        q, k, v = (each.transpose(1, 2).float() for each in (query, key, value))
        scores = q @ k.mT * named["scale"]
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest).exp()
        total = weights.sum(-1, keepdim=True)
        result = (weights.bfloat16().float() @ v / total).transpose(1, 2).bfloat16()
        state = [each.detach().repeat(1, 1, 1, 8) for each in (largest, total)]
        return result, *state, query.new_empty(0), 0, 0, scores.numel()

    found = bench("NPU.npu_fusion_attention", flash, *args, registry=device("npu_fusion_attention", flash), **kwargs)
    assert found.check().verdict == "pass"

    def loses(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any) -> Any:
        value = torch.cat((value[:, :1] * 0.9, value[:, 1:]), 1)
        return flash(query, key, value, *rest, **named)

    wrong = bench("NPU.npu_fusion_attention", flash, *args, registry=device("npu_fusion_attention", loses), **kwargs)
    assert failed(wrong.check()) == {"output.0": "noise"}


def edited(folder: Path, entry: str, edit: Callable[[dict[str, Any]], None]) -> Verdict:
    """The verdict on a stored call whose entry was changed."""
    path = write(folder / "dump", {entry: None})
    top = json.loads(path.read_text())
    edit(top["data"][entry])
    path.write_text(json.dumps(top))
    [verdict] = verdicts(path, device="recorded").values()
    return verdict


def test_an_argument_that_is_not_known_is_a_skip_that_names_it(tmp_path: Path) -> None:
    entry = named("attention causal from the last")
    found = edited(tmp_path / "mode", entry, lambda body: body["input_kwargs"]["sparse_mode"].update(value=6))
    assert (found.verdict, found.kind) == ("skip", "no reference")
    assert found.reason == f"{tmp_path}/mode/dump/dump.json: {entry}: sparse_mode=6: the reference knows 0, 1, 2, 3, 4"
    found = edited(tmp_path / "heads", named("attention BSH"), lambda body: body["input_args"][3].update(value=5))
    assert (found.verdict, found.kind) == ("skip", "broken record")
    wanted = "expected BSH with as many places for each head"
    assert f"found query of shape [2, 6, 32] and head_num 5, {wanted}" in found.reason


def test_without_a_reference_or_torch_npu_a_device_runs_nothing(bench: Make) -> None:
    boxes = normal(3, 4).float()
    verdict = bench("NPU.npu_iou", lambda *boxes: torch.ones(3, 3), boxes, boxes).check()
    assert (verdict.verdict, verdict.kind) == ("skip", "no reference")
    assert "NPU.npu_iou.0.forward: kernels add 0.01 to the sides of boxes" in verdict.reason
    verdict = bench("NPU.npu_swiglu", KERNELS["npu_swiglu"], normal(4, 6).float()).check()
    assert (verdict.verdict, verdict.kind) == ("skip", "unsupported by the device")
    assert "torch_npu is not imported here; --probe-device=recorded judges what a dump stored" in verdict.reason


def test_a_reference_of_the_project_comes_first(bench: Make) -> None:
    registry = device("npu_swiglu", lambda x: x.sum(-1))
    registry.references["NPU.npu_swiglu"] = lambda x: x.sum(-1)
    found = bench("NPU.npu_swiglu", lambda x: x.sum(-1), normal(4, 6).float(), registry=registry)
    assert found.check().verdict == "pass"
