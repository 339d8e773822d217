"""Which functions a computation enters, and what they are: a digest of all code that they may call by name.

All that a function can call by a name, it finds under that name in a module or in a class. While these are unchanged,
the same call enters the same functions. So a file of the cache holds the names with their digest, and both are compared
before its numbers are used.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

import msgspec

from pytest_probe.features.cache.keys import PLAIN, Unkeyed
from pytest_probe.frameworks import without_wrapper

_COMPILED = (
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
_CONTAINERS = (list, tuple, set, frozenset, dict)
_WRAPPERS = (staticmethod, classmethod)
# Where pybind11 keeps what it compiles.
_PYBIND = "pybind11_builtins"
# The package whose own code is part of every key.
_OWN = __name__.partition(".")[0]
# A longer container is a table of data, identified by its length; the depth to which values are followed.
_LONGEST, _DEEPEST = 200, 6
# Attributes that describe a function or a class and that nobody calls.
_TEXTS = frozenset({"__doc__", "__name__", "__qualname__", "__module__", "__file__", "__dict__", "__class__"})
# Packages that run during a computation without a part in it (hypothesis watches garbage collection), and packages on
# which frameworks and this package depend. Versions identify their functions.
_WITHOUT_PART = (
    *"_pytest pluggy pytest xdist execnet hypothesis coverage numpy ml_dtypes msgspec".split(),
    *"_distutils_hack typing_extensions opt_einsum sympy mpmath networkx".split(),
)
_IMPORT = "_find_and_load"  # of importlib, around each module that is imported


class Witness(msgspec.Struct, frozen=True):
    """The names that a computation may look up, and by module the digest of what it has under these names."""

    names: tuple[str, ...]
    digests: tuple[tuple[str, str], ...]

    def holds(self, package: str) -> bool:
        """Is all of it as it was? A module that is not imported yet has had nothing replaced."""
        loaded = {name: digest for name, digest in self.digests if name in sys.modules}
        try:
            found = _state_of(loaded, self.names, package)
        except Unkeyed:
            return False
        return found == loaded


def witness(codes: Mapping[CodeType, str], package: str) -> Witness:
    """What identifies the functions that this code may call. Raises Unkeyed where one has no digest."""
    names = tuple(sorted({name for code in codes for name in _names(code)}))
    # The modules of this code, and modules that they hold under one of the names.
    reached, waiting = set[str](), [*codes.values(), package]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in reached or module is None or name.partition(".")[0] not in (package, _OWN):
            continue
        reached.add(name)
        there = (vars(module).get(each) for each in names)
        waiting += (each.__name__ for each in there if isinstance(each, ModuleType))
    found = _state_of(sorted(reached), names, package)
    return Witness(names, tuple(found.items()))


def _names(code: CodeType) -> Iterator[str]:
    """All that code looks up, what it asks getattr for included, and its own name."""
    yield code.co_name
    yield from set(code.co_names) - _TEXTS
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str) and constant.isidentifier() and constant not in _TEXTS:
            yield constant


def description(function: Callable[..., Any], package: str) -> bytes:
    """What distinguishes a function from others of its name. Raises Unkeyed where it is not the framework's own."""
    return _Description(package, {})(function)


def _state_of(modules: Iterable[str], names: tuple[str, ...], package: str) -> dict[str, str]:
    """By module, the digest of what it has under these names. Raises Unkeyed where something has no digest."""
    # The digests of classes, each looked at once.
    known: dict[type, bytes] = {}
    found = {}
    for module in modules:
        state, classes = hashlib.sha256(), dict[type, None]()
        describe, own = _Description(package, classes), module.partition(".")[0] == package
        held = vars(sys.modules[module])
        for name in names:
            if name not in held:
                continue
            # Of this package's own code what it has imported of the framework.
            origin = module if own else str(getattr(held[name], "__module__", None) or "")
            if origin.partition(".")[0] == package:
                state.update(describe.member(name, held[name]))
        for kind in classes:
            if kind not in known:
                members = vars(kind)
                # Classes that these lead to are in other modules, or have names of their own.
                of_class = _Description(package, {})
                known[kind] = b"".join(of_class.member(name, members[name]) for name in names if name in members)
            state.update(f"{kind.__module__}.{kind.__qualname__}:".encode() + known[kind])
        found[module] = state.hexdigest()
    return found


class _Description:
    """Bytes that distinguish a value from all others of its kind; classes collects the classes that it met."""

    def __init__(self, package: str, classes: dict[type, None]) -> None:
        self._package = package
        self._classes = classes
        self._above: set[int] = set()

    def member(self, name: str, value: Any) -> bytes:
        """Bytes for a member of a module or a class. They are empty for numbers and tables, which count and register
        while a program runs, and for a module that is found under its own name. A table may hold the framework's own
        functions only."""
        if isinstance(value, _CONTAINERS):
            _Description(self._package, {})(value)  # its classes are described in their own modules
            return b""
        counts = isinstance(value, (bool, int, type(None)))
        named = isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value
        return b"" if counts or named else name.encode() + self(value)

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, PLAIN):
            return f"{type(value).__name__} {value!r}".encode()
        if id(value) in self._above or len(self._above) > _DEEPEST:
            return f"again {type(value).__qualname__}".encode()
        self._above.add(id(value))
        try:
            return self._composed(value)
        finally:
            self._above.discard(id(value))

    def _composed(self, value: Any) -> bytes:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, _COMPILED):
            return self._compiled(value)
        if isinstance(value, type):
            if not self._is_trusted(value.__module__):
                raise Unkeyed(f"{value.__module__}.{value.__qualname__} is not the framework's own")
            if value.__module__.partition(".")[0] == self._package:
                trusted = (each for each in value.__mro__ if self._is_trusted(each.__module__))
                self._classes.update(dict.fromkeys(trusted))
            return f"class {value.__module__}.{value.__qualname__}".encode()
        if isinstance(value, _CONTAINERS):
            begin = f"{type(value).__name__} {len(value)}:".encode()
            if len(value) > _LONGEST:
                return begin
            if isinstance(value, dict):
                return begin + b"".join(self(key) + self(item) for key, item in value.items())
            parts = map(self, value)
            return begin + b"".join(sorted(parts) if isinstance(value, (set, frozenset)) else parts)
        if isinstance(value, ModuleType):
            # A module that replaces another is not the one of its name.
            own = sys.modules.get(value.__name__) is value or value.__name__.partition(".")[0] == self._package
            return f"module {value.__name__} {own}".encode()
        return self._object(value)

    def _function(self, function: FunctionType) -> bytes:
        if not _is_known(function.__code__, function.__globals__, self._package):
            raise Unkeyed(f"{function.__module__}.{function.__qualname__} is not the framework's own")
        inner = without_wrapper(function)
        if inner is not function:
            return self(inner)
        cells = [_content(cell) for cell in function.__closure__ or ()]
        held = (function.__defaults__, function.__kwdefaults__, cells)
        return b"function" + _code(function.__code__) + b"".join(map(self, held))

    def _compiled(self, value: Any) -> bytes:
        if getattr(type(getattr(value, "__self__", None)), "__module__", "") == _PYBIND and value.__module__ is None:
            return f"field {value.__name__}".encode()  # of a compiled class; a function would name its module
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
        module = str(module or getattr(owner, "__name__", "") or type(owner).__module__)
        if not self._is_trusted(module):
            raise Unkeyed(f"{value!r} is compiled, and not the framework's own")
        named = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", type(owner).__qualname__)
        return f"compiled {module} {named} {value.__name__}".encode()

    def _object(self, value: Any) -> bytes:
        kind = type(value)
        begin = f"object {kind.__module__}.{kind.__qualname__}".encode()
        if isinstance(value, functools.partial):
            return begin + self((value.func, value.args, value.keywords))
        if isinstance(value, _WRAPPERS):
            return begin + self(value.__func__)
        if isinstance(value, MethodType):
            return begin + self(value.__func__) + self(type(value.__self__))
        if isinstance(value, property):
            return begin + self((value.fget, value.fset, value.fdel))
        if not callable(value):
            return begin
        if not self._is_trusted(kind.__module__):
            raise Unkeyed(f"a {kind.__qualname__} is called in the framework's place")
        # An object that the framework makes from a function, such as a user's operator, holds that function. What
        # operators remember of their calls differs between processes; any function in it must be the framework's own.
        self(dict(getattr(value, "__dict__", {})))
        return begin + str(getattr(value, "_name", "")).encode() + self(getattr(value, "__wrapped__", None))

    def _is_trusted(self, module: str) -> bool:
        top = module.partition(".")[0]
        return top in (self._package, _OWN, "builtins", *_WITHOUT_PART) or top in sys.stdlib_module_names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


@functools.lru_cache(maxsize=65536)
def _code(code: CodeType) -> bytes:
    """The digest of code, wherever its file lies."""
    state = hashlib.sha256(code.co_code)
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    state.update(
        repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, shape)).encode()
    )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            state.update(_code(constant))
        else:
            # A set has another order in each process.
            text = repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
            state.update(f"{type(constant).__name__} {text};".encode())
    return state.digest()


class Entered:
    """Notes the functions that are entered in here, in this thread. kept_back: they could not be observed.

    codes holds the code of the entered functions, with the names of their modules; foreign is a function that is
    neither the framework's, this package's nor Python's, "" without one.
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
        if code.co_name == _IMPORT and code.co_filename.startswith("<frozen importlib"):
            # What runs while a module is imported makes functions; it computes nothing.
            self._imports += {"call": 1, "return": -1}.get(event, 0)
            return
        if event != "call" or self._imports > 0 or code in self.codes:
            return
        module = str(frame.f_globals.get("__name__", ""))
        self.codes[code] = module
        if not self.foreign and not _is_known(code, frame.f_globals, self._package):
            self.foreign = f"{module}.{code.co_name}"


def _is_known(code: CodeType, names: dict[str, Any], package: str) -> bool:
    """Is it code of the framework's, of this package's or of Python's? names are its globals."""
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
    standard = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
    return file.startswith(_folders(package)) or (
        file.startswith(standard) and {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    )


@functools.cache
def _folders(package: str) -> tuple[str, ...]:
    """Folders of the framework's own code, of this package's, and of the packages on which both depend."""
    found = [str(Path(__file__).parents[2])]
    for name in (package, *_WITHOUT_PART):
        spec = importlib.util.find_spec(name)
        if spec is not None:
            found += spec.submodule_search_locations or [spec.origin or ""]
    return tuple(folder if folder.endswith(".py") else folder + os.sep for folder in found if folder)
