"""PyTorch: what a capture asks of it."""

from __future__ import annotations

from typing import Any

import torch

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.framework import Recording
from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.torch.capture.hooks import TorchHooks
from pytest_probe.frameworks.torch.capture.optimizers import steps_end


class TorchRecording:
    """torch, as a capture needs it."""

    after_optimizer_steps = staticmethod(steps_end)

    def hooks(self, config: CaptureConfig, model: Any = None) -> TorchHooks:
        if config.layout == "paddleapex":
            raise SettingsError("layout", config.layout, "PaddleAPEX's files hold calls of Paddle; give layout msprobe")
        return TorchHooks(config, model)

    def seed(self, seed: int, deterministic: bool) -> None:
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.benchmark = False


def made() -> Recording:
    """See capture.framework.recording."""
    return TorchRecording()
