"""PaddlePaddle: what a capture asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle
from paddle.optimizer import Optimizer

from pytest_probe.capture.bindings import steps_end
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import refuse_dropouts
from pytest_probe.capture.paddle.hooks import PaddleHooks, PaddleTiming
from pytest_probe.capture.paddle.values import Values


def _kinds(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield from _kinds(each)


keep_dropped = refuse_dropouts
hooks = PaddleHooks
timing = PaddleTiming


def after_optimizer_steps(step: Callable[[], None]) -> AbstractContextManager[None]:
    return steps_end([kind for kind in _kinds(Optimizer) if "step" in vars(kind)], "step", step)


def sample(config: CaptureConfig, dtype: str, shape: tuple[int, ...]) -> tuple[Values, Any]:
    return Values(config), paddle.ones(list(shape), dtype)


def seed(seed: int, deterministic: bool) -> None:
    paddle.seed(seed)
    # Not every build has each.
    for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
        if flag in paddle.base.core.globals().keys():  # noqa: SIM118 (no mapping of Python's)
            paddle.set_flags({flag: deterministic})
