"""PaddlePaddle: what a capture asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import paddle
from paddle.optimizer import Optimizer

from pytest_probe.capture.bindings import steps_end
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.estimate import snapshot_seconds
from pytest_probe.capture.framework import Recording
from pytest_probe.frameworks import refuse_dropouts
from pytest_probe.frameworks.paddle.capture.hooks import PaddleHooks
from pytest_probe.frameworks.paddle.capture.values import Values


def _kinds(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield from _kinds(each)


class PaddleRecording:
    """Paddle, as a capture needs it."""

    keep_dropped = staticmethod(refuse_dropouts)

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        return steps_end([kind for kind in _kinds(Optimizer) if "step" in vars(kind)], "step", step)

    def hooks(self, config: CaptureConfig, model: Any = None) -> PaddleHooks:
        return PaddleHooks(config, model)

    def snapshot_seconds(self, dtype: str, shape: tuple[int, ...], file: Path | None) -> float:
        values = Values(CaptureConfig("", task="statistics" if file is None else "tensor"))
        with paddle.no_grad():
            return snapshot_seconds(values, paddle.ones(list(shape), dtype), file)

    def seed(self, seed: int, deterministic: bool) -> None:
        paddle.seed(seed)
        # Not every build has each.
        for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
            if flag in paddle.base.core.globals().keys():  # noqa: SIM118 (no mapping of Python's)
                paddle.set_flags({flag: deterministic})


made: Callable[[], Recording] = PaddleRecording  # see capture.framework.recording
