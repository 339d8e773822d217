"""The frameworks whose calls run here, by the names that dumps give them; no other room knows these names.

In: a framework's name. Out: `load` gives what runs calls, `recording` what records them. Both import the framework.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_probe.core.garbage_collection import paused_gc
from pytest_probe.errors import Unsupported

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Framework, Recording, Signatures

# Name in a dump: the module to import, which is also the name of our extra.
MODULES: Mapping[str, str] = {"pytorch": "torch"}
# The framework of what no dump names: functions that a test checks, programs that are captured.
DEFAULT = "pytorch"


def unavailable(name: str) -> str:
    """Why calls of a framework cannot run here; "" where they can."""
    module = MODULES.get(name)
    if module is None:
        return f"it was recorded with {name}, whose calls cannot run yet; give a dump of {', '.join(MODULES)}"
    if importlib.util.find_spec(module) is None:
        return f"its calls need {module}, which is not installed: pip install 'pytest-probe[{module}]'"
    return ""


def signatures(name: str = DEFAULT) -> Signatures:
    """What the framework calls its APIs and their parameters, as canonical names; nothing of it is imported."""
    from pytest_probe.frameworks.torch import signatures

    return signatures


def load(name: str = DEFAULT) -> Framework:
    """The framework of this name. Raises Unsupported where it cannot run here, FrameworkTooOld where a newer one is
    needed."""
    if name not in MODULES:
        raise Unsupported(f"a dump of {name}; this version replays {', '.join(MODULES)}", "another framework")
    first = MODULES[name] not in sys.modules
    with paused_gc():
        _check_installed(name)
        from pytest_probe.frameworks.torch.framework import TorchFramework
    if first:
        # What the import made stays as long as the process: no collection needs to walk over all of it again.
        gc.freeze()
    return TorchFramework()


def recording() -> Recording:
    """What records the calls of a program. Raises Unsupported where the framework is not installed, FrameworkTooOld
    where a newer one is needed."""
    _check_installed(DEFAULT)
    from pytest_probe.frameworks.torch.recording.recording import TorchRecording

    return TorchRecording()


def _check_installed(name: str) -> None:
    """Before anything else of a framework's room is imported, which only works with the releases that it knows.
    Raises Unsupported where the framework is not installed, FrameworkTooOld where a newer one is needed."""
    module = MODULES[name]
    if importlib.util.find_spec(module) is None:
        reason = f"{module} is not installed: pip install 'pytest-probe[{module}]'"
        raise Unsupported(reason, "framework not installed")
    from pytest_probe.frameworks.torch import version

    version.check()
