"""PaddlePaddle: what a capture asks of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import paddle

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import Recording
from pytest_probe.frameworks.paddle.capture.hooks import PaddleHooks
from pytest_probe.frameworks.paddle.capture.optimizers import steps_end


class PaddleRecording:
    """Paddle, as a capture needs it."""

    def hooks(self, config: CaptureConfig, model: Any = None) -> PaddleHooks:
        return PaddleHooks(config, model)

    def seed(self, seed: int, deterministic: bool) -> None:
        paddle.seed(seed)
        # Not every build has each.
        for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
            if flag in paddle.base.core.globals().keys():  # noqa: SIM118 (no mapping of Python's)
                paddle.set_flags({flag: deterministic})

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        return steps_end(step)


def made() -> Recording:
    """See capture.framework.recording."""
    return PaddleRecording()
