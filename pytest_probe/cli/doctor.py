"""`pytest-probe doctor`: what is installed here, and what a run would use. A report of a bug begins with it."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture.kernel import kernel_line
from pytest_probe.errors import ProbeError
from pytest_probe.frameworks.base import Devices
from pytest_probe.numerics import kernel
from pytest_probe.system.text import printable
from pytest_probe.user_errors import exception_line

_NEEDED = ("pytest-probe", "pytest", "numpy", "ml_dtypes", "msgspec", "pyyaml")
# What each extra brings.
_EXTRAS = {
    "parallel": "pytest-xdist",
    "fuzz": "hypothesis",
    "report": "jinja2",
    "cluster": "ray",
    "online": "grpcio",
}


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "doctor",
        help="say what is installed here, and what a run would use: what the report of a bug begins with",
        description="Say which versions, devices, device modes, kernels and extras are here, and what a run would use.",
        epilog="exit status: 0, or 1 where no framework can run",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status."""
    print(f"python        {platform.python_version()}, {platform.platform()}, {platform.machine()}")
    for name in _NEEDED:
        print(f"{name:<13} {_version(name)}")
    used = ""
    for name, module in frameworks.MODULES.items():
        default, lines = _framework(name)
        used = used or (f"the device {default}, by {module}" if default else "")
        print(printable("\n".join(f"{module if not place else '':<13} {line}" for place, line in enumerate(lines))))
    draws = "without one" if kernel.compiled is None else "with one"
    print(f"kernels       {kernel_line()}; checks draw random numbers {draws}")
    for extra, name in _EXTRAS.items():
        found = _version(name)
        hint = f": pip install 'pytest-probe[{extra}]'" if found == _MISSING else ""
        print(f"{extra:<13} {name} {found}{hint}")
    print(f"a run uses    {used or 'nothing: no framework can run here'}")
    return 0 if used else 1


_MISSING = "is not installed"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _MISSING


def _framework(name: str) -> tuple[str, list[str]]:
    """The device that it would use, "" for none, and what is said of it."""
    if why := frameworks.unavailable(name):
        return "", [why.partition(", which ")[2] or why]
    try:
        found = frameworks.load(name)
        device = found.default_device()
        release = str(sys.modules[frameworks.MODULES[name]].__version__)
        return device, [release, *_device(found, device)]
    except ProbeError as error:
        return "", [str(error)]
    except Exception as error:
        return "", [f"cannot be used: {exception_line(error)}"]


def _device(framework: Devices, device: str) -> Iterator[str]:
    for name in dict.fromkeys((*framework.all_devices(device), "cpu")):
        modes = ", ".join(framework.allowed(name)) or "none"
        what = ", ".join(f"{key} {value}" for key, value in framework.hardware(name).items())
        yield "; ".join(filter(None, (f"device {name}", what, f"allowed modes: {modes}")))
