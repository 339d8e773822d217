"""msprobe's own API checker on dumps, with the CPU as its device; under a Python that has it.

    PYTHON tests/conformance/peer_check.py DUMP FOLDER [DUMP FOLDER ...]    # CSV files, or failed.txt, in each folder

The checker wants an NPU or CUDA: its module attribute `current_device` becomes "cpu", and what it asks of torch.cuda
does nothing. It collects garbage after each call, and before each it makes its table of all APIs anew: here it does
not, and makes it once, for time alone. Nothing else is changed.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

PLACES = (("acc_check.acc_check", "acc_check.acc_check_utils"), ("run_ut.run_ut", "run_ut.run_ut_utils"))


def checker() -> Any:
    """The module that is the checker, told that its device is the CPU."""
    for name, beside in PLACES:
        try:
            module = importlib.import_module(f"msprobe.pytorch.api_accuracy_checker.{name}")
        except ModuleNotFoundError:
            continue
        helper: Any = importlib.import_module(f"msprobe.pytorch.api_accuracy_checker.{beside}")
        module.current_device = helper.current_device = "cpu"  # type: ignore[attr-defined]
        if hasattr(helper, "get_api_register"):
            _fill_once(type(helper.get_api_register()))
        return module
    raise SystemExit("this Python has no msprobe with an API checker")


def _fill_once(registry: Any) -> None:
    fill = registry.initialize_hook
    registry.initialize_hook = lambda self, hook: self.ori_api_attr or fill(self, hook)


def main() -> None:
    torch.cuda.set_device = torch.cuda.empty_cache = lambda *_: None  # type: ignore[assignment]
    module = checker()
    run = getattr(module, "_acc_check", None) or module._run_ut
    gc.collect = lambda *_: 0
    given = sys.argv[1:]
    for dump, folder in zip(given[::2], given[1::2], strict=True):
        sys.argv[1:] = ["-api_info", dump, "-o", folder]
        try:
            run()
        except Exception:
            Path(folder).mkdir(exist_ok=True)
            Path(folder, "failed.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main()
