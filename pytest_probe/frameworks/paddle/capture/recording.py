"""PaddlePaddle: what a capture asks of it."""

from __future__ import annotations

from typing import Any

import paddle

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import Recording
from pytest_probe.frameworks.paddle.capture.hooks import PaddleHooks
from pytest_probe.frameworks.paddle.capture.optimizers import steps_end


class PaddleRecording:
    """Paddle, as a capture needs it."""

    after_optimizer_steps = staticmethod(steps_end)

    def hooks(self, config: CaptureConfig, model: Any = None) -> PaddleHooks:
        return PaddleHooks(config, model)

    def seed(self, seed: int, deterministic: bool) -> None:
        paddle.seed(seed)
        # Not every build has each.
        for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
            if flag in paddle.base.core.globals().keys():  # noqa: SIM118 (no mapping of Python's)
                paddle.set_flags({flag: deterministic})


def made() -> Recording:
    """See capture.framework.recording."""
    return PaddleRecording()
