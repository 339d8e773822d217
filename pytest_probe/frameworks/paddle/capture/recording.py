"""PaddlePaddle: what a capture asks of it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle
from paddle.optimizer import Optimizer

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.estimate import snapshot_seconds
from pytest_probe.capture.framework import Recording
from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.paddle.capture.hooks import PaddleHooks
from pytest_probe.frameworks.paddle.capture.values import Values


@contextmanager
def steps_end(step: Callable[[], None]) -> Iterator[None]:
    """Call step after each step of the optimizer that steps first; others belong to its steps."""
    first: list[weakref.ref[Any]] = []

    def stepped(optimizer: Any) -> None:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(optimizer)]
        if first[0]() is optimizer:
            step()

    originals = [(kind, vars(kind)["step"]) for kind in _kinds(Optimizer) if "step" in vars(kind)]
    replaced = [(kind, original, _followed(original, stepped)) for kind, original in originals]
    for kind, _, replacement in replaced:
        kind.step = replacement
    try:
        yield
    finally:
        for kind, original, replacement in replaced:
            if vars(kind).get("step") is replacement:
                kind.step = original


def _kinds(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield from _kinds(each)


def _followed(original: Callable[..., Any], stepped: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replacement(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        stepped(optimizer)
        return result

    return replacement


class PaddleRecording:
    """Paddle, as a capture needs it."""

    after_optimizer_steps = staticmethod(steps_end)

    def hooks(self, config: CaptureConfig, model: Any = None) -> PaddleHooks:
        return PaddleHooks(config, model)

    def keep_dropped(self, wanted: bool) -> None:
        if wanted:
            raise SettingsError(
                "rm_dropout", wanted, "only PyTorch's dropouts can be changed; put the model in eval mode"
            )

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


def made() -> Recording:
    """See capture.framework.recording."""
    return PaddleRecording()
