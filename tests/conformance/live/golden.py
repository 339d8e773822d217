"""References of torch_npu's operators, and the tool's golden functions, on the same tensors of float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.npu import OPERATORS
from tests.conformance.agreement import Agreement
from tests.conformance.live.tool import Tool
from tests.support.npu_kernels import EXAMPLES, Example, mapped, normal

# Roundoffs of float32, of the largest number of an output: golden functions round each step to it.
ROUNDOFFS = 64
# Where the tool's golden function computes something else than torch_npu's documents say. docs/npu.md has the reasons.
SLIPS: Mapping[str, str] = {
    "rms_norm": "the tool's default of epsilon is 1e-5, torch_npu's 1e-6",
    "rms_norm of two dimensions": "the tool takes the mean over the last dimension alone",
    "layer_norm": "the tool leaves out weight, bias and eps",
    "adamw with the largest moment": "the tool draws random numbers in the place of max_grad_norm",
    "attention with a band from the last": "the tool counts sparse_mode 4 from the first key, torch_npu from the last",
    "attention with a mode and no mask": "the tool makes a mask where torch_npu sees all keys",
}
# What the tool takes otherwise: calls of the same with all arguments, by position.
CALLS: Mapping[str, Example] = {
    **EXAMPLES,
    "rms_norm with its epsilon": Example("npu_rms_norm", (normal(3, 16), normal(16, seed=1), 0.01)),
    "scaled_masked_softmax of a triangle": Example(
        "npu_scaled_masked_softmax", (normal(2, 3, 8, 8), torch.zeros(1, 1, 8, 8) > 0, 2.0, True)
    ),
    "scaled_masked_softmax of hidden rows": Example(
        "npu_scaled_masked_softmax", (normal(2, 3, 8, 8), torch.ones(8, 8) > 0, 1.0, False)
    ),
    "gating": Example("npu_moe_gating_top_k_softmax", (normal(6, 16), None, 3)),
    "gating with finished rows": Example("npu_moe_gating_top_k_softmax", (normal(6, 16), normal(6, seed=1) > 0, 2)),
    "attention with a mode and no mask": Example(
        "npu_fusion_attention", EXAMPLES["attention BSND"].args, {"scale": 0.3, "sparse_mode": 2}
    ),
    "confusion_transpose": Example("npu_confusion_transpose", (normal(2, 3, 4), [0, 2, 1], [2, 12], True)),
    "confusion_transpose of a new shape": Example(
        "npu_confusion_transpose", (normal(2, 12), [0, 2, 1], [2, 3, 4], False)
    ),
    "sort": Example("npu_sort_v2", (normal(4, 9),)),
    "sort downwards": Example("npu_sort_v2", (normal(4, 9), -1, True)),
}


def check(tool: Tool) -> Mapping[str, Agreement]:
    calls, results = tool.folder / "golden-calls.pt", tool.folder / "golden-results.pt"
    given = {name: _single(example) for name, example in CALLS.items()}
    torch.save(given, calls)
    tool.run("peer_golden.py", calls, results)
    found = Agreement()
    for name, outputs in torch.load(results, weights_only=True).items():
        if outputs is None or isinstance(outputs, str):
            found.undecided += 1
        else:
            found.add(name, _unlike(given[name], outputs), SLIPS.get(name, ""))
    return {"golden functions of torch_npu's operators": found} if found.rows else {}


def _single(example: Example) -> tuple[str, Any, Any]:
    cast = mapped((example.args, dict(example.kwargs)), lambda each: each.float() if each.is_floating_point() else each)
    return example.name, *cast


def _unlike(call: tuple[str, Any, Any], outputs: Sequence[Any]) -> str:
    """In what the tool's outputs are unlike the reference in float64 on the same numbers; "" in nothing."""
    api, *arguments = call
    args, kwargs = mapped(arguments, lambda each: each.double() if each.is_floating_point() else each.clone())
    own = OPERATORS[api](*args, **kwargs)
    # The tool gives three of attention's outputs.
    pairs = zip(list(own) if isinstance(own, (list, tuple)) else [own], outputs, strict=False)
    for place, (wanted, found) in enumerate(pairs):
        if wanted.shape != found.shape:
            return f"output {place} has the shape {list(found.shape)}, the reference {list(wanted.shape)}"
        limit = ROUNDOFFS * 2.0**-24 * float(wanted.abs().max()) if wanted.is_floating_point() else 0.0
        error = float((found.double() - wanted.double()).abs().max())
        if error > limit:
            return f"output {place} is off by {error:.3g}, {error / max(limit, 1e-300) * ROUNDOFFS:.3g} roundoffs"
    return ""
