"""What one passing case goes through: `python benchmarks/case_walk.py [--files] [ITEM]`.

ITEM is the name of an item of cases/gpt, "Functional.gelu.0.forward" without one. pytest checks it twice in this
process, on the CPU in the recorded dtype, and the second time counts: by then everything is imported and looked up.
Printed are, for the whole item and for the check alone, the files of the package that are entered, the calls of its
Python functions, and how many of those cross from one file into another; and the number of Python frames below the
check, down to the call on the device and to the standard's judge, the last one included. --files lists the files in the
order in which they are entered, with their calls.

The package is that of the interpreter's path: with PYTHONPATH=OTHER, that of another checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pytest_probe

ROOT = Path(__file__).parent.parent
PACKAGE = Path(pytest_probe.__file__).parent
# Where the check of one case begins, and what is looked for below it: the end of a file's path, and a function there.
CHECK = "plugin/session.py", "check"
LANDMARKS = {
    "the call on the device": ("frameworks/python/framework.py", "call"),
    "the standard's judge": ("standards/noise/standard.py", "judge"),
}


class Walk:
    """The calls of the package's functions: of the whole item, and of the check alone."""

    def __init__(self) -> None:
        self.calls: dict[str, Counter[str]] = {"item": Counter(), "check": Counter()}
        self.crossing: Counter[str] = Counter()
        self.depths: dict[str, int] = {}
        self.deepest = 0
        self._check: FrameType | None = None

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        file = _file(frame)
        if event == "return" and frame is self._check:
            self._check = None
        if event != "call" or not file:
            return
        if self._check is None and _is(frame, CHECK):
            self._check = frame
        for part in ("item", "check") if self._check is not None else ("item",):
            self.calls[part][file] += 1
            self.crossing[part] += frame.f_back is not None and _file(frame.f_back) not in ("", file)
        if self._check is not None:
            depth = sum(1 for _ in _below(frame, self._check))
            self.deepest = max(self.deepest, depth)
            for name, place in LANDMARKS.items():
                if _is(frame, place):
                    self.depths.setdefault(name, depth)


def _file(frame: FrameType) -> str:
    """A file of the package, from its folder on; "" for another one's."""
    name = frame.f_code.co_filename
    return name.removeprefix(f"{PACKAGE}{os.sep}") if name.startswith(f"{PACKAGE}{os.sep}") else ""


def _is(frame: FrameType, place: tuple[str, str]) -> bool:
    return frame.f_code.co_name == place[1] and _file(frame) == place[0]


def _below(frame: FrameType, top: FrameType) -> Iterator[FrameType]:
    """The Python frames between two, the inner one included."""
    current: FrameType | None = frame
    while current is not None and current is not top:
        yield current
        current = current.f_back


class Plugin:
    """Has pytest run the item a second time, and walks with that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.walk: Walk | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.name.startswith(self.name)][:1] * 2

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if nextitem is not None:
            yield
            return
        self.walk = Walk()
        sys.setprofile(self.walk.record)
        try:
            yield
        finally:
            sys.setprofile(None)


def walked(name: str) -> Walk:
    """Raises RuntimeError, with what pytest printed, where the item does not pass; and where the walk does not come to
    a landmark, whose function has another place or name by now."""
    plugin, printed = Plugin(name), io.StringIO()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        options = ["-p", "pytest_probe.plugin", "-p", "no:cacheprovider", "--probe-device=cpu"]
        status = pytest.main([*options, f"--probe-dump={ROOT / 'cases/gpt'}"], plugins=[plugin])
    if status or plugin.walk is None:
        raise RuntimeError(printed.getvalue())
    missed = [
        f"{name} ({file}: {function})" for name, (file, function) in LANDMARKS.items() if name not in plugin.walk.depths
    ]
    if missed or not plugin.walk.calls["check"]:
        raise RuntimeError(
            f"the walk did not come to {', '.join(missed) or CHECK}: bring LANDMARKS and CHECK up to date"
        )
    return plugin.walk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("item", nargs="?", default="Functional.gelu.0.forward")
    parser.add_argument("--files", action="store_true", help="list the files")
    given = parser.parse_args()
    walk = walked(given.item)
    for part, calls in walk.calls.items():
        print(f"the {part}: {len(calls)} files, {calls.total():,} calls, {walk.crossing[part]} cross files")
    for name, depth in walk.depths.items():
        print(f"frames from the check to {name}: {depth}")
    print(f"deepest frame below the check: {walk.deepest}")
    if given.files:
        print("\n".join(f"  {count:>5} {name}" for name, count in walk.calls["item"].items()))


if __name__ == "__main__":
    main()
