"""MindSpore: what a capture asks of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mindspore

from pytest_probe.capture.bindings import steps_end
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.estimate import snapshot_seconds
from pytest_probe.capture.framework import Recording
from pytest_probe.frameworks import refuse_dropouts
from pytest_probe.frameworks.mindspore.arrays import dtype_named
from pytest_probe.frameworks.mindspore.capture.hooks import OPTIMIZERS, MindSporeHooks
from pytest_probe.frameworks.mindspore.capture.values import Values
from pytest_probe.frameworks.mindspore.signatures import bare


class MindSporeRecording:
    """MindSpore, as a capture needs it."""

    keep_dropped = staticmethod(refuse_dropouts)

    def hooks(self, config: CaptureConfig, model: Any = None) -> MindSporeHooks:
        return MindSporeHooks(config, model)

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        return steps_end(OPTIMIZERS, "__call__", step)

    def snapshot_seconds(self, dtype: str, shape: tuple[int, ...], file: Path | None) -> float:
        values = Values(CaptureConfig("", task="statistics" if file is None else "tensor"))
        return snapshot_seconds(values, mindspore.ops.ones(shape, dtype_named(bare(dtype))), file)

    def seed(self, seed: int, deterministic: bool) -> None:
        mindspore.set_seed(seed)
        mindspore.set_deterministic(deterministic)


made: Callable[[], Recording] = MindSporeRecording  # see capture.framework.recording
