"""What --probe-listen and its companions take."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.capture.config import read_config
from pytest_probe.capture.online.address import Folder, HostPort, Listen
from pytest_probe.capture.online.sending import Connection
from pytest_probe.errors import SettingsError
from pytest_probe.features.online.plugin import Listening
from pytest_probe.option_types import Given

NO_ADDRESSES = ["7000", "host:99999", "localhost:1,port=2", "http://host:1", "file://other/x", "file:x", "a b:1"]


def read(text: str, folder: Path) -> Listen | None:
    return Listening().read(Given("--probe-listen", text, folder, is_set=True))


def test_addresses(tmp_path: Path) -> None:
    assert read("", tmp_path) is None
    assert read("localhost:7000", tmp_path) == Listen(HostPort("localhost", 7000))
    assert read("file:///shared/run1", tmp_path) == Listen(Folder(Path("/shared/run1")))
    assert Listening().plain(read("[::1]:7", tmp_path)) == "[::1]:7"
    keys = Listen(HostPort("far", 7), tls=str(tmp_path), limit=3000)
    assert read(f"far:7,limit=3kB,tls={tmp_path}", tmp_path) == keys


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "or HOST:PORT, or msprobe's config") for text in NO_ADDRESSES),
        ("0.0.0.0:7000", "what is sent would be readable on its way"),
        ("file:///tmp/x,limit=1GB", "limit is for HOST:PORT; leave it out"),
        ("localhost:7000,limit=much", "--probe-listen: 'much' cannot be used; give a size"),
    ],
)
def test_what_is_no_address(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=words):
        read(text, tmp_path)


def test_a_configuration_of_msprobe(tmp_path: Path) -> None:
    section = {"is_online": True, "nfs_path": "", "host": "10.0.0.1", "port": 4000, "rank_list": [0, 2],
               "tls_path": "keys", "white_list": ["conv2d"], "black_list": [], "error_data_path": "./"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"task": "run_ut", "run_ut": section}))
    assert read("config.json", tmp_path) == Listen(HostPort("10.0.0.1", 4000), "keys", (0, 2), ("conv2d",))
    (tmp_path / "config.json").write_text(json.dumps({"run_ut": {**section, "nfs_path": "/shared"}}))
    found = read("config.json", tmp_path)
    assert found is not None
    assert found.address == Folder(Path("/shared"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "give a JSON object, as msprobe's config.json"),
        ("{}", "it has no section run_ut"),
        ("[" * 100_000, "give a JSON object, as msprobe's config.json"),
        ('{"run_ut": {"is_online": false, "host": "h", "port": 1}}', "must have is_online true"),
        ('{"run_ut": {"is_online": true, "host": "h"}}', "and nfs_path, or host and port"),
        ('{"run_ut": {"is_online": true, "host": "h", "port": "x"}}', "port"),
        ('{"run_ut": {"is_online": true, "rank_list": ["a"]}}', "rank_list"),
    ],
)
def test_what_is_no_such_configuration(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SettingsError, match=words):
        read("config.json", tmp_path)


def test_without_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"needs gRPC.*pip install 'pytest-probe\[online\]'"):
        read("localhost:7000", tmp_path)
    assert read("file:///shared", tmp_path) is not None
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "pytest_probe.capture.online.stream", raising=False)
    hooks: Any = None
    with pytest.raises(SettingsError, match=r"needs gRPC.*pip install 'pytest-probe\[online\]'"):
        Connection(read_config(None, task="tensor", online="localhost:1"), hooks).open(0, 1)
