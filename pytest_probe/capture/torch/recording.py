"""PyTorch: what a capture asks of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from pytest_probe.capture.bindings import of_first
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.torch.hooks import TorchHooks
from pytest_probe.capture.torch.timing import TorchTiming
from pytest_probe.capture.torch.values import Values
from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.torch.state import unfrozen

# Dropout that keeps all elements, for programs that are compared: torch's functions, with training=False.
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class _Keeping:
    """A dropout that gives what it gets. It is equal to torch's, by which a capture knows its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return self.function(input, p, training=False, inplace=inplace)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _Keeping) else other)

    def __hash__(self) -> int:
        return hash(self.function)


def keep_dropped(wanted: bool) -> None:
    """From now on these functions, and the modules that call them, give what they get; not wanted: as torch has it."""
    for name in _DROPOUTS:
        found = getattr(F, name)
        original = found.function if isinstance(found, _Keeping) else found
        setattr(F, name, _Keeping(original) if wanted else original)


@contextmanager
def after_optimizer_steps(step: Callable[[], None]) -> Iterator[None]:
    handle = register_optimizer_step_post_hook(of_first(step))
    try:
        yield
    finally:
        handle.remove()


def hooks(config: CaptureConfig, model: Any = None) -> TorchHooks:
    if config.layout == "paddleapex":
        raise SettingsError("layout", config.layout, "PaddleAPEX's files hold calls of Paddle; give layout msprobe")
    return TorchHooks(config, model)


timing = TorchTiming


def sample(config: CaptureConfig, dtype: str, shape: tuple[int, ...]) -> tuple[Values, Any]:
    return Values(config), torch.ones(shape, dtype=getattr(torch, dtype))


def seed(seed: int, deterministic: bool) -> None:
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    with unfrozen():
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.benchmark = False
