"""Which functions a computation enters, and whose they are."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

# What runs beside a computation without a part in it, as hypothesis' watch over garbage collection; and what frameworks
# and this package stand on, whose functions are known by their versions.
BESIDE: tuple[str, ...] = (
    "_pytest",
    "pluggy",
    "pytest",
    "xdist",
    "execnet",
    "hypothesis",
    "coverage",
    "numpy",
    "ml_dtypes",
    "msgspec",
)
BESIDE += ("_distutils_hack", "typing_extensions", "opt_einsum", "sympy", "mpmath", "networkx")


IMPORT = "_find_and_load"  # of importlib, around each module that is imported


class Entered:
    """Notes the functions that are entered in here, in this thread. kept_back tells that this could not be seen.

    codes holds the code of those that are the framework's or this package's, by the names of their modules; foreign is
    a function that is neither, nor Python's own, "" where there is none.
    """

    def __init__(self, package: str) -> None:
        self.codes: dict[CodeType, str] = {}
        self.foreign = ""
        self.kept_back = False
        self._package = package
        self._imports = 0

    def __enter__(self) -> Entered:
        # Another profiler has the only place there is.
        self.kept_back = sys.getprofile() is not None
        if not self.kept_back:
            sys.setprofile(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.kept_back:
            self.kept_back = sys.getprofile() != self._note
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_name == IMPORT and code.co_filename.startswith("<frozen importlib"):
            # What runs while a module is imported makes functions; it computes nothing.
            self._imports += {"call": 1, "return": -1}.get(event, 0)
            return
        if event != "call" or self._imports > 0 or code in self.codes:
            return
        module = str(frame.f_globals.get("__name__", ""))
        self.codes[code] = module
        if not self.foreign and not is_known(code, frame.f_globals, self._package):
            self.foreign = f"{module}.{code.co_name}"


def is_known(code: CodeType, names: dict[str, Any], package: str) -> bool:
    """Is it code of the framework's, of this package's or of Python's? names are those of its module."""
    file = code.co_filename
    if not file.startswith("<"):
        return _lies_in(file, package)
    if file.startswith("<frozen "):
        return True
    # What a dataclass or a named tuple writes for itself runs in the names of its module.
    module = sys.modules.get(str(names.get("__name__", "")))
    if module is None:
        return str(names.get("__name__", "")).startswith("namedtuple_")
    # An annotation that is a text is evaluated among copies of its module's names, and replaces no function.
    evaluated = code.co_name == "<module>"
    return (evaluated or module.__dict__ is names) and _lies_in(getattr(module, "__file__", None) or "", package)


@functools.cache
def _lies_in(file: str, package: str) -> bool:
    return any(file.startswith(folder) for folder in folders(package)) or (
        file.startswith(_standard()) and not {"site-packages", "dist-packages"}.intersection(Path(file).parts)
    )


@functools.cache
def folders(package: str) -> tuple[str, ...]:
    """Where the framework's own code lies, this package's, and that of what both stand on."""
    found = [str(Path(__file__).parents[2])]
    for name in (package, *BESIDE):
        spec = importlib.util.find_spec(name)
        if spec is not None:
            found += spec.submodule_search_locations or [spec.origin or ""]
    return tuple(folder if folder.endswith(".py") else folder + os.sep for folder in found if folder)


@functools.cache
def _standard() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
