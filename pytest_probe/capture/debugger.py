"""What a training script calls: PrecisionDebugger, as msprobe's, shorter ways to the same, and seed_all."""

from __future__ import annotations

import atexit
import importlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_probe import frameworks
from pytest_probe.capture.config import asks_itself, read_config
from pytest_probe.capture.framework import recording
from pytest_probe.capture.recorder import Recorder, log
from pytest_probe.capture.writer import Outcome

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_probe.capture.config import AllOptions, Options

# What task free_benchmark asks with, which stands above this room.
_TRAINING = "pytest_probe.features.self_check.training"
# msprobe's.
_FIRST_SEED = 1234


def seed_all(
    seed: int = _FIRST_SEED, mode: bool = False, framework: str = frameworks.DEFAULT, *, rm_dropout: bool = False
) -> None:
    """Seed Python's, NumPy's and the framework's generators; mode: it shall use deterministic algorithms, and warn
    without one. rm_dropout: torch.nn.functional.dropout and the like give what they get until a call without.
    Raises Unsupported where the framework is not installed, SettingsError where its dropouts cannot be changed."""
    _seed(seed, mode, framework)
    recording(framework).keep_dropped(rm_dropout)


def _seed_as_asked(config: Any, framework: str) -> None:
    if config.seed is not None or config.deterministic is not None:
        _seed(_FIRST_SEED if config.seed is None else config.seed, bool(config.deterministic), framework)


def _seed(seed: int, mode: bool, framework: str) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed)
    # cuBLAS reads this when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    recording(framework).seed(seed, mode)


class PrecisionDebugger:
    """Records what a program calls between start() and stop(), one folder a step.

    config_path is msprobe's config.json; what is given here counts more. model, here or at start(): for levels L0 and
    mix, and for the path of the module that makes each call. options are the keys of the configuration by their
    names there: scope, list, data_mode, summary_mode, white_list, black_list, rank, extra_info, overflow_nums,
    namespaces, seed, is_deterministic (with either everything that draws is seeded here, as by seed_all), rank_folder
    (the number of this process, where nothing that started it says it), and kinds
    ("float", "int", "bool", "scalar"): of which values statistics or data are kept. framework is whose calls are
    recorded, as dumps name it: "pytorch", "paddle" or
    "mindspore".

    Raises SettingsError for a configuration that cannot be used, at the first start() also for a dump_path that cannot
    be written, or that holds the dump of an earlier run (overwrite=True removes that), and Unsupported where the
    framework is not installed; nothing else ever reaches the program, but for the OverflowFound that an overflow_check
    ends with.
    """

    def __init__(
        self,
        config_path: str | os.PathLike[str] | None = None,
        task: str | None = None,
        dump_path: str | os.PathLike[str] | None = None,
        level: str | None = None,
        model: Any = None,
        step: Sequence[int | str] | None = None,
        framework: str = frameworks.DEFAULT,
        **options: Unpack[Options],
    ) -> None:
        given = {"task": task, "dump_path": dump_path, "level": level, "step": step, **options}
        given = {key: value for key, value in given.items() if value is not None}
        self._training: Any = None
        asked = asks_itself(config_path, **given)
        if asked is not None:
            self._training = importlib.import_module(_TRAINING).Training(asked, framework)
            _seed_as_asked(self._training.config, framework)
            atexit.register(self.close)
            return
        config = read_config(config_path, **given)
        _seed_as_asked(config, framework)
        self._hooks = recording(framework).hooks(config, model)
        self.recorder = Recorder(config, self._hooks)

    def start(self, model: Any = None) -> None:
        """Begin to record, or go on. Raises SettingsError where the level needs a model and none was given, and for a
        folder that cannot be written, or that holds the dump of an earlier run."""
        if self._training is not None:
            safely(self._training.start)
            return
        self._hooks.follow(model)
        self.recorder.take_folder()
        safely(self.recorder.start)

    def forward_backward_dump_end(self) -> None:
        """Record no new calls; gradients of calls already recorded are still recorded."""
        safely(self.recorder.forward_ends)

    def stop(self) -> None:
        """Record no longer, and leave no hook."""
        safely(self._asks.stop)

    def step(self) -> None:
        """A step ends: what was recorded of it is on the disk when this returns."""
        safely(self._asks.end_step)

    def close(self) -> None:
        """Stop, write what is left, and say once what was recorded. The end of the process does it as well."""
        safely(self._asks.finish)

    @property
    def _asks(self) -> Any:
        """What stops, ends steps and finishes."""
        return self.recorder if self._training is None else self._training

    def finish(self) -> Outcome:
        """Stop, and write what is left. What was recorded, for who says it in words of their own."""
        self.recorder.announced = True
        safely(self.recorder.finish)
        return self.recorder.outcome


def safely(act: Callable[[], None]) -> None:
    """What goes wrong is said, and never reaches the program."""
    try:
        act()
    except Exception as error:
        log.error("pytest-probe: %s failed (%s: %s); the program continues", act.__name__, type(error).__name__, error)


@contextmanager
def capture(dump_path: str | os.PathLike[str], **options: Unpack[AllOptions]) -> Iterator[PrecisionDebugger]:
    """Record what is called in this block; options as PrecisionDebugger's."""
    debugger = PrecisionDebugger(dump_path=dump_path, **options)
    debugger.start()
    try:
        yield debugger
    finally:
        debugger.close()
