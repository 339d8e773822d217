from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import fields

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.capture.arguments import AllOptions, Options
from pytest_probe.capture.config import ARGUMENTS
from pytest_probe.errors import SettingsError
from pytest_probe.features.self_check.training import Config

# Parameters of PrecisionDebugger.
OWN = {"task", "dump_path", "level", "step"}
ONLINE = {"online_run_ut", "nfs_path", "host", "port"}


def test_each_key_has_a_type() -> None:
    keys = {each.encode_name for each in (*fields(ARGUMENTS), *fields(Config))}
    assert set(Options.__annotations__) == (keys - OWN) | ONLINE
    assert set(AllOptions.__annotations__) >= OWN - {"dump_path"}


def test_a_name_that_is_none() -> None:
    with pytest.raises(ImportError, match="PrecisonDebugger"):
        from pytest_probe import PrecisonDebugger  # type: ignore[attr-defined]  # noqa: F401


def test_a_value_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="online"):
        PrecisionDebugger(online=3)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="lists"):
        PrecisionDebugger(dump_path=tmp_path, lists=["relu"])  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="summary_mode"), capture(tmp_path, summary_mode="sha"):  # type: ignore[arg-type]
        pass
