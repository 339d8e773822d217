"""MindSpore: what a capture asks of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mindspore

from pytest_probe.capture.bindings import steps_end
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import refuse_dropouts
from pytest_probe.capture.mindspore.hooks import OPTIMIZERS, MindSporeHooks, MindSporeTiming
from pytest_probe.capture.mindspore.values import Values
from pytest_probe.frameworks.mindspore.arrays import dtype_named
from pytest_probe.frameworks.mindspore.signatures import bare

keep_dropped = refuse_dropouts
hooks = MindSporeHooks
timing = MindSporeTiming


def after_optimizer_steps(step: Callable[[], None]) -> AbstractContextManager[None]:
    return steps_end(OPTIMIZERS, "__call__", step)


def sample(config: CaptureConfig, dtype: str, shape: tuple[int, ...]) -> tuple[Values, Any]:
    return Values(config), mindspore.ops.ones(shape, dtype_named(bare(dtype)))


def seed(seed: int, deterministic: bool) -> None:
    mindspore.set_seed(seed)
    mindspore.set_deterministic(deterministic)
