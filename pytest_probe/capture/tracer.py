"""PaddleAPEX's Tracer, start() at the beginning of each step and stop() at its end, and the tool_config.yaml and
op_target.yaml that configure it."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from msgspec import Meta, Struct, field

from pytest_probe.capture.config import ApexOptions, CaptureConfig
from pytest_probe.capture.debugger import safely
from pytest_probe.capture.framework import recording
from pytest_probe.capture.recorder import Recorder
from pytest_probe.errors import SettingsError
from pytest_probe.system.decoding import decode
from pytest_probe.system.files import open_regular

T = TypeVar("T")
# It names the file where no argument does.
_VARIABLE = "APEX_CONFIG_PATH"
# Values of op_target_path that mean PaddleAPEX's own list; all that can be recorded is taken instead.
_ALL = ("None", "", None)

_Flag = Annotated[bool, Meta(description="give true or false")]
_Path_ = Annotated[str, Meta(description="give the path of a folder")]
_Names = Annotated[
    tuple[str, ...] | None, Meta(description="give a list of functions, as paddle.nn.functional.softmax")
]
_running: weakref.WeakSet[Tracer] = weakref.WeakSet()


class _ToolConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """tool_config.yaml; a key that is left out has PaddleAPEX's own default."""

    op_target_path: Annotated[str | None, Meta(description="give the path of a file, or None")] = None
    dump_root_path: _Path_ = "./dump_info"
    remote_path: _Path_ = "/root/paddlejob/workspace/PaddleAPEX_dump/"
    asynchronous: _Flag = field(default=False, name="Async_dump")
    dump_mode: Literal["random", "real_data"] = "random"
    # Ours are the extremes themselves, wherever they are computed.
    profile_mode: _Flag = True
    target_step: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(min_length=1, description="give a list of numbers, 0 or more, as [0, 5]"),
    ] = (0,)
    dump_unique: _Flag = True
    split_dump: _Flag = True


class _OpTarget(Struct, frozen=True, forbid_unknown_fields=True):
    """op_target.yaml; its documentation writes the first key with a space."""

    target_op: _Names = None
    spaced: _Names = field(default=None, name="target op")
    ignored_op: _Names = None


def _read_tool_config(path: str | os.PathLike[str] | None) -> CaptureConfig:
    """The configuration of a file; None: of the file that APEX_CONFIG_PATH names, or the defaults without that
    variable.

    Raises SettingsError, which names the file, the key and what would do.
    """
    path = path or os.environ.get(_VARIABLE)
    tool = _ToolConfig() if path is None else _read(Path(path), _ToolConfig)
    folder = Path(tool.dump_root_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError("dump_root_path", tool.dump_root_path, f"it cannot be made ({error.strerror})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError("dump_root_path", tool.dump_root_path, "give a folder that can be written to")
    return CaptureConfig(
        os.path.abspath(tool.dump_root_path),
        task="tensor" if tool.dump_mode == "real_data" else "statistics",
        steps=tuple(range(step, step + 1) for step in tool.target_step),
        stacks=False,
        layout="paddleapex",
        apex=ApexOptions(tool.dump_unique, tool.split_dump, tool.remote_path if tool.asynchronous else ""),
        **_functions(tool.op_target_path),
    )


def _functions(path: str | None) -> dict[str, Any]:
    """Which functions a file lists, and which it leaves out."""
    if path in _ALL:
        return {}
    target = _read(Path(str(path)), _OpTarget)
    names = (*(target.target_op or ()), *(target.spaced or ()))
    ignored = target.ignored_op or ()
    if not names:
        return {"black": ignored}
    return {"targets": tuple(name for name in names if name not in ignored)}


def _read(path: Path, kind: type[T]) -> T:
    try:
        with open_regular(path) as file:
            content = yaml.safe_load(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(str(path), error.strerror, "give a configuration file that can be read") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(str(path), str(error), "give a YAML file, as PaddleAPEX's tool_config.yaml") from None
    if content is not None and not isinstance(content, dict):
        raise SettingsError(str(path), content, "give a mapping, `key: value`, as PaddleAPEX's tool_config.yaml")
    return decode(content or {}, kind, lambda steps: str(path))


class Tracer:
    """Records the steps of a Paddle program into PaddleAPEX's files, with PaddleAPEX's configuration.

    config is a tool_config.yaml; None: what APEX_CONFIG_PATH names, else PaddleAPEX's defaults. Raises SettingsError
    for one that cannot be used, and while another Tracer runs; later nothing reaches the program.
    """

    def __init__(self, config: str | os.PathLike[str] | None = None) -> None:
        if _running:
            raise SettingsError("Tracer", "a second one", "stop the one that runs first")
        found = _read_tool_config(config)
        self._recorder = Recorder(found, recording("paddle").hooks(found))

    def start(self) -> None:
        """A step begins; one that was not stopped ends before. Raises SettingsError while another Tracer runs."""
        if self in _running:
            self.stop()
        if _running:
            raise SettingsError("Tracer", "a second one", "stop the one that runs first")
        _running.add(self)
        safely(self._recorder.start)

    def stop(self) -> None:
        """The step ends: what was recorded of it is on the disk when this returns."""
        if self in _running:
            _running.discard(self)
            safely(self._recorder.stop)
            safely(self._recorder.end_step)
