"""msprobe's own golden functions of torch_npu's operators on calls that are given; under a Python that has it.

    PYTHON tests/conformance/peer_golden.py CALLS RESULTS

CALLS is a file of torch.save: by name the API, its arguments and keywords. RESULTS gets by name a list of outputs, or
the text of what was raised; None where this release has no golden function of the API.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

# A function or two of each; importing the package would import all of them at once, of which some need more.
MODULES = (
    "apply_adam apply_adam_w confusion_transpose fast_gelu group_norm_silu layer_norm_eval linear mish "
    "moe_gating_top_k_softmax npu_fusion_attention rms_norm rotary_mul scaled_mask_softmax sort_v2 swiglu"
).split()


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in MODULES:
        try:
            module = importlib.import_module(f"msprobe.pytorch.bench_functions.{name}")
        except ImportError:
            continue
        yield from (
            (each, found) for each, found in vars(module).items() if each.startswith("npu_") and callable(found)
        )


def main() -> None:
    golden = dict(functions())
    results: dict[str, list[Any] | str | None] = {}
    for name, (api, args, kwargs) in torch.load(sys.argv[1], weights_only=True).items():
        function = golden.get(api) or golden.get(f"npu_{api}")
        try:
            found = None if function is None else function(*args, **kwargs)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
            continue
        results[name] = list(found) if isinstance(found, (list, tuple)) else None if found is None else [found]
    torch.save(results, sys.argv[2])


if __name__ == "__main__":
    main()
