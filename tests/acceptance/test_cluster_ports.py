"""--probe-cluster=ray without an address: what it starts listens on this machine alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.writing import entries, write_dump

pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-probe[cluster]'")
if not Path("/proc/net/tcp").exists():
    pytest.skip("reads which ports are open from Linux's /proc", allow_module_level=True)

RUN = ["--probe-dump=dump.json", "--probe-cluster=ray", "--probe-device=cpu", "-p", "no:cacheprovider"]
# What proc(5) calls a socket that listens.
LISTENS = "0A"
# A case waits for this file, so that ports are read while the run goes on.
WAITING = """
    import os, pathlib, time, pytest

    @pytest.hookimpl
    def pytest_runtest_setup(item):
        pathlib.Path({began!r}).touch()
        while not os.path.exists({go!r}):
            time.sleep(0.05)
"""


def listening() -> dict[str, str]:
    """The address of each socket that listens, by the name that a process's folder has for it."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS:
                found[f"socket:[{inode}]"] = address(local.partition(":")[0])
    return found


def address(hexadecimal: str) -> str:
    """As people write it: the kernel has it in words of 4 bytes, each in the machine's order."""
    raw = bytes.fromhex(hexadecimal)
    words = b"".join(
        raw[start : start + 4][:: -1 if sys.byteorder == "little" else 1] for start in range(0, len(raw), 4)
    )
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, words)


def listening_below(process: int) -> dict[str, str]:
    """Address by the command of the process that listens there, and a number: of this session's processes."""
    found: dict[str, str] = {}
    sockets, session = listening(), os.getsid(process)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if os.getsid(int(folder.name)) == session:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                for handle in (folder / "fd").iterdir():
                    with suppress(OSError):  # this one alone was closed meanwhile
                        name = os.readlink(handle)
                        found |= {f"{command} {name}": sockets[name]} if name in sockets else {}
    return found


def test_it_listens_on_this_machine_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_dump(pytester.path, entries("Torch.tanh.0", torch.tanh, torch.ones(3)))
    began, go = pytester.path / "began", pytester.path / "go"
    pytester.makeconftest(WAITING.format(began=str(began), go=str(go)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *RUN], cwd=pytester.path, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        end = time.monotonic() + 600
        while not began.exists():
            time.sleep(0.05)
            assert run.poll() is None, run.communicate()[0]
            assert time.monotonic() < end
        found = listening_below(run.pid)
    finally:
        go.touch()
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert any("gcs_server" in command for command in found), found
    assert any("raylet" in command for command in found), found
    assert set(found.values()) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, found
