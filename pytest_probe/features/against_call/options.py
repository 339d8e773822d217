"""What --probe-against-call names."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pytest_probe.errors import SettingsError
from pytest_probe.option_types import Given, Type, content
from pytest_probe.registry import Registry
from pytest_probe.user_errors import exception_line, reporting_failures_of

OPTION = "--probe-against-call"
HOOK = "pytest_probe_register"


class Module(Type):
    """An import path, or the path of a Python file; None without one."""

    def read(self, given: Given) -> str | None:
        if not given.text:
            return None
        return str(given.path) if given.text.endswith(".py") else given.text

    def identity(self, value: str | None) -> str | None:
        """Two runs with the same file, wherever it lies, are alike."""
        return content(Path(value)) if value is not None and value.endswith(".py") else value


def registered(module: str) -> Registry:
    """What a module's pytest_probe_register adds to a new registry. Raises SettingsError."""
    try:
        found = _of_file(Path(module)) if module.endswith(".py") else import_module(module)
    except Exception as error:
        raise SettingsError(OPTION, module, f"it cannot be imported: {exception_line(error)}") from error
    hook = getattr(found, HOOK, None)
    if hook is None:
        raise SettingsError(OPTION, module, f"it has no function {HOOK}(registry)")
    registry = Registry.default()
    with reporting_failures_of(f"{HOOK} of {module}"):
        hook(registry)
    if not registry.calls:
        raise SettingsError(OPTION, module, f"its {HOOK} adds no calls: registry.calls['Functional.softmax'] = ...")
    return registry


def _of_file(path: Path) -> ModuleType:
    """A file as a module of its own name, or of a longer one where another module has that, as conftest has. What lies
    beside the file it can import."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return found
