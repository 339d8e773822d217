"""The frameworks whose calls run here, by the names that dumps give them; no other room knows these names.

In: a framework's name. Out: `load` gives what runs calls, and imports the framework.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from pytest_probe.errors import FrameworkTooOld, Unsupported
from pytest_probe.system.process import hidden_noise, paused_gc

if TYPE_CHECKING:
    import numpy as np

    from pytest_probe.frameworks.base import Framework, Signatures
    from pytest_probe.model.collective import Collectives


# Name in a dump: the module to import, which is also the name of our extra. They are imported in this order, in which
# no two of them break in one process.
MODULES: Mapping[str, str] = {"pytorch": "torch", "mindspore": "mindspore", "paddle": "paddle"}
# Those whose programs can be recorded and timed.
RECORDED = ("pytorch", "paddle", "mindspore")
# The framework whose calls judge what dumps of another one stored, where that need not be installed.
JUDGED_BY: Mapping[str, str] = {"mindspore": "pytorch"}
# By module the first release that works: the first of torch with `torch.accelerator`, by which an accelerator of any
# kind is found; the first of Paddle whose NumPy is that of the other frameworks; the only one of MindSpore that was
# tried.
OLDEST: Mapping[str, tuple[int, int]] = {"torch": (2, 6), "paddle": (3, 0), "mindspore": (2, 10)}
# The framework of what no dump names: functions that a test checks, programs that are captured.
DEFAULT = "pytorch"


def unavailable(name: str, *, stored: bool = False) -> str:
    """Why calls of a framework cannot run here; "" where they can. stored: what a dump stored of them is judged, and no
    device runs."""
    if name not in MODULES:
        return f"it was recorded with {name}, whose calls cannot run yet; give a dump of {', '.join(MODULES)}"
    for each in _needed(name, stored):
        module = MODULES[each]
        if importlib.util.find_spec(module) is None:
            without = "; --probe-device=recorded judges stored outputs without it" if each in JUDGED_BY else ""
            return f"its calls need {module}, which is not installed: pip install 'pytest-probe[{module}]'{without}"
    return ""


def _needed(name: str, stored: bool) -> tuple[str, ...]:
    """The frameworks that calls of this one need: the ones that run them, and the ones that judge them."""
    judging = JUDGED_BY.get(name, name)
    return (judging,) if stored or judging == name else (name, judging)


def named(module: str) -> str:
    """What dumps call the framework of this module."""
    return next(name for name, each in MODULES.items() if each == module)


def device_of(module: str, name: str) -> str:
    """What the framework of this module calls a device that another one calls so ("gpu:1" is torch's "cuda:1")."""
    kind, colon, number = name.partition(":")
    return f"{_KINDS.get((module, kind), kind)}{colon}{number}"


# By framework, and the kind of a device as another one calls it.
_KINDS: Mapping[tuple[str, str], str] = {("torch", "gpu"): "cuda", ("paddle", "cuda"): "gpu"}


@functools.cache
def signatures(name: str = DEFAULT) -> Signatures:
    """What the framework calls its APIs and their parameters, as canonical names; nothing of it is imported. Of a
    framework that has no room here, as torch would call them."""
    found: Signatures = _part(MODULES.get(name, MODULES[DEFAULT]), "signatures")
    return found


def collectives(name: str) -> Collectives | None:
    """What calls of the framework's collectives are, nothing of it is imported; None where nobody knows them."""
    found: Collectives | None = _part(MODULES[name], "collectives") if name == DEFAULT else None
    return found


def load(name: str = DEFAULT, *, stored: bool = False) -> Framework:
    """The framework of this name; stored: what computes the references of outputs that its dumps stored. Raises
    Unsupported where it cannot run here, FrameworkTooOld where a newer one is needed."""
    if stored and name in JUDGED_BY:
        check_installed(JUDGED_BY[name])
        judging: Framework = _part(name, "stored").made()
        return judging
    if name not in MODULES:
        raise Unsupported(f"a dump of {name}; this version replays {', '.join(MODULES)}", "another framework")
    first = MODULES[name] not in sys.modules
    with paused_gc():
        for each in _needed(name, stored):
            check_installed(each)
        loaded: Framework = _part(MODULES[name], "framework").made()
    if first:
        # What the import made stays as long as the process: no collection needs to walk over all of it again.
        gc.freeze()
    return loaded


def import_in_order(names: Sequence[str]) -> None:
    """Import these frameworks before any is asked for, where a later one's import would break an earlier one."""
    if {"mindspore", "paddle"} <= set(names):
        with suppress(Unsupported, FrameworkTooOld):
            check_installed("mindspore")


def array_of(value: Any) -> np.ndarray:
    """The values of a tensor, on whatever device, of a framework that this process has imported; of anything else what
    NumPy makes of it. Raises Unsupported for a tensor that NumPy has no place for, and what a framework raises."""
    for module in MODULES.values():
        kind = getattr(sys.modules.get(module), "Tensor", None)
        if kind is not None and isinstance(value, kind):
            on_host = value.detach().cpu() if hasattr(value, "cpu") else value
            found: np.ndarray = _part(module, "arrays").to_array(on_host)
            return found
    from numpy import asarray

    return asarray(value)


def check_installed(name: str) -> None:
    """Before anything else of a framework's room is imported, which only works with the releases that it knows.
    Raises Unsupported where the framework is not installed, FrameworkTooOld where a newer one is needed."""
    module = MODULES[name]
    if importlib.util.find_spec(module) is None:
        reason = f"{module} is not installed: pip install 'pytest-probe[{module}]'"
        raise Unsupported(reason, "framework not installed")
    found = str(_imported(module).__version__)
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < OLDEST[module]:
        raise FrameworkTooOld(module, found, ".".join(map(str, OLDEST[module])))


def _imported(module: str) -> ModuleType:
    if module == "mindspore" and module not in sys.modules:
        if "paddle" in sys.modules:
            reason = "Paddle was imported before MindSpore, which then cannot be: run their dumps apart"
            raise Unsupported(reason, "framework not installed")
        with hidden_noise():
            return importlib.import_module(module)
    if module != "paddle":
        return importlib.import_module(module)
    with warnings.catch_warnings():
        # Each import says that a compiler's cache is missing, which nothing here needs.
        warnings.filterwarnings("ignore", message="No ccache found")
        return importlib.import_module(module)


def _part(module: str, part: str) -> Any:
    """A file of a framework's room, which all have by the same names."""
    return importlib.import_module(f"{__name__}.{module}.{part}")


# What variables of the environment begin with that decide which kernels run, and how they split sums.
_NUMERIC = tuple(
    "ATEN_ TORCH PYTORCH_ FLAGS_ PADDLE_ MKL DNNL_ ONEDNN_ OMP_ KMP_ GOMP_ OPENBLAS_ BLIS_ CUBLAS CUDA_ CUDNN_ NVIDIA_ "
    "ASCEND HCCL_ LD_PRELOAD LD_LIBRARY_PATH".split()
)


def environment() -> tuple[tuple[str, str], ...]:
    """The variables of the environment that decide how frameworks compute, with their values."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith(_NUMERIC)))


# By module the function that makes such wrappers, and what they call the function inside: torch keeps its compiler out
# of some of its own when that is imported.
_MAKERS = {"torch._compile": ("_disable_dynamo", "fn")}


def own_name(function: Callable[..., Any]) -> str:
    """What a function calls itself; an operator of torch.library is an object, and named as torch.ops has it
    ("mylib::softcap")."""
    return str(getattr(function, "__name__", None) or getattr(function, "_qualname", "") or type(function).__name__)


def without_wrapper(function: FunctionType) -> FunctionType:
    """The function that such a wrapper calls; any other function itself."""
    maker, inside = _MAKERS.get(str(function.__globals__.get("__name__")), ("", ""))
    made_by = getattr(sys.modules.get(str(function.__globals__.get("__name__"))), maker, None) if maker else None
    # The code of the functions that it makes is among its constants.
    made = getattr(getattr(made_by, "__code__", None), "co_consts", ())
    if inside not in function.__code__.co_freevars or function.__code__ not in made:
        return function
    found = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))[inside].cell_contents
    return found if isinstance(found, FunctionType) else function


COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


def belongs_to(function: Callable[..., Any], package: str) -> bool:
    """Is it the package's own function, and none that somebody put in its place?"""
    if isinstance(function, COMPILED):
        owner = getattr(function, "__objclass__", None) or function
        module = getattr(owner, "__module__", None) or getattr(getattr(function, "__self__", None), "__name__", "")
        return str(module).split(".", 1)[0] == package
    if not isinstance(function, FunctionType) or package not in sys.modules:
        return False
    folders = map(Path, sys.modules[package].__path__)
    own = any(Path(function.__code__.co_filename).is_relative_to(folder) for folder in folders)
    # A decorator of the framework's may stand around a function of the user's.
    inner = getattr(function, "__wrapped__", None)
    return own and (inner is None or belongs_to(inner, package))
