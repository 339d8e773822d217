"""How the text of an option is read, and how its value is written down: one class a type. Nothing heavy is imported.

In: an option as the user wrote it. Out: its value, or a SettingsError that says what would do.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Protocol

    from pytest_probe.errors import SettingsError
    from pytest_probe.model.dump import Direction

    Value = TypeVar("Value", covariant=True)

    class Reads(Protocol[Value]):
        """A type of options. read raises SettingsError."""

        kind: str

        def read(self, given: Given) -> Value: ...
        def plain(self, value: Any) -> Any: ...
        def identity(self, value: Any) -> Any: ...


T = TypeVar("T")
# The file of results in a folder of --probe-out.
RESULTS = "results.jsonl"
SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Given(NamedTuple):
    """An option as the user wrote it.

    name is how the user set it: "--probe-seed", or "probe_seed in pyproject.toml". folder is where relative paths
    start. value is the default where is_set is False; from_ini: an ini file has it, and no command line. in_worker: a
    worker of pytest-xdist reads it.
    """

    name: str
    value: Any
    folder: Path
    is_set: bool
    from_ini: bool = False
    in_worker: bool = False

    @property
    def text(self) -> str:
        return "" if self.value is None or self.value is False else str(self.value)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Absolute."""
        values = [self.value] if isinstance(self.value, str) else self.value or []
        return tuple(Path(os.path.normpath(self.folder / Path(text).expanduser())) for text in values)

    @property
    def path(self) -> Path | None:
        return next(iter(self.paths), None)

    def keys(self, *names: str) -> tuple[str, dict[str, str]]:
        """What is written in front of ",name=value", and the values of these names."""
        text, *parts = re.split(rf",(?=(?:{'|'.join(names)})=)", self.text)
        return text, dict(part.split("=", 1) for part in parts)

    def of(self, value: str) -> Given:
        """A value of one of its keys."""
        return self._replace(value=value, from_ini=False)

    def wrong(self, wanted: str, value: object = None) -> SettingsError:
        """value: what cannot be used, where that is not the text."""
        from pytest_probe.errors import SettingsError

        return SettingsError(self.name, self.text if value is None else value, wanted)


class Type:
    """What types have in common. kind is "string", "int", "flag" or "list" (repeatable; a linelist in ini files)."""

    kind = "string"

    def plain(self, value: Any) -> Any:
        """A value as run.json has it."""
        from pytest_probe.system.text import printable_line

        if isinstance(value, tuple):
            return [self.plain(each) for each in value]
        if isinstance(value, Path):
            return printable_line(str(value))
        return "inf" if value == math.inf else value

    def identity(self, value: Any) -> Any:
        """A value as two runs are compared by it: where several names are given, their order means nothing."""
        plain = self.plain(value)
        return sorted(plain) if isinstance(plain, list) else plain


class Flag(Type):
    kind = "flag"

    def read(self, given: Given) -> bool:
        return bool(given.value)


class FlagOrWord(Type):
    """A flag that may have a word: `--probe-x`, or `--probe-x=all`. The flag alone, and true in an ini file, means the
    first of them; "" where it is not given."""

    kind = "flag"

    def __init__(self, alone: str, *words: str) -> None:
        self._alone, self.words = alone, words

    def read(self, given: Given) -> str:
        return self._alone if given.value is True else given.text


class Text(Type):
    def read(self, given: Given) -> str:
        return given.text


class Maybe(Type, Generic[T]):
    """None where nothing was written."""

    def __init__(self, written: Reads[T]) -> None:
        self._written = written

    def read(self, given: Given) -> T | None:
        return self._written.read(given) if given.text else None


class Needing(Type, Generic[T]):
    """What needs a package that comes with an extra of pytest-probe; None where nothing was written."""

    def __init__(self, written: Reads[T], package: str, extra: str) -> None:
        self._written, self._package, self._extra = written, package, extra

    def read(self, given: Given) -> T | None:
        value = self._written.read(given)
        if value is not None and (missing := missing_extra(self._package, self._extra)):
            raise given.wrong(missing)
        return value

    def plain(self, value: Any) -> Any:
        return self._written.plain(value)

    def identity(self, value: Any) -> Any:
        return self._written.identity(value)


class Whole(Type):
    """A whole number from low to below high."""

    kind = "int"

    def __init__(self, low: int, high: int, wanted: str) -> None:
        self._low, self._high, self._wanted = low, high, wanted

    def read(self, given: Given) -> int:
        text = given.text
        if not text.isascii() or not text.isdigit() or not self._low <= int(text) < self._high:
            raise given.wrong(self._wanted)
        return int(text)


class Number(Type):
    """A number that fits; NaN fits nowhere."""

    def __init__(self, fits: Callable[[float], bool], wanted: str) -> None:
        self._fits, self._wanted = fits, wanted

    def read(self, given: Given) -> float:
        try:
            value = float(given.text)
        except ValueError:
            value = math.nan
        if not self._fits(value):
            raise given.wrong(self._wanted)
        return value


class Size(Type):
    """Bytes."""

    def read(self, given: Given) -> int:
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kMGT]?)B", given.text)
        size = 0 if match is None else int(float(match[1]) * SIZES[match[2]])
        if not size:
            raise given.wrong("give a size, as 500MB or 10GB")
        return size


class Keyed(Type):
    """A value with others behind it by their keys, as "8,backend=nccl": a tuple of all, or None without the first."""

    def __init__(self, first: Reads[Any], **keys: tuple[Reads[Any], str]) -> None:
        """keys: how each is read, and its default."""
        self._first, self._keys = first, keys

    def read(self, given: Given) -> Any:
        text, written = given.keys(*self._keys)
        if not text:
            return None
        # First, since reading a folder makes it.
        others = [kind.read(given.of(written.get(key, default))) for key, (kind, default) in self._keys.items()]
        return self._first.read(given.of(text)), *others

    def identity(self, value: Any) -> Any:
        return self.plain(value)


class Choice(Type):
    """One of these names."""

    def __init__(self, *choices: str) -> None:
        self._choices = choices

    def read(self, given: Given) -> str:
        from pytest_probe.system.text import check_name

        return check_name(given.name, given.text, self._choices)


class Directions(Type):
    """The directions that one name means."""

    def __init__(self, choices: Mapping[str, tuple[Direction, ...]]) -> None:
        self._choices = choices

    def read(self, given: Given) -> tuple[Direction, ...]:
        return self._choices[Choice(*self._choices).read(given)]

    def identity(self, value: Any) -> str:
        return next(name for name, directions in self._choices.items() if directions == value)


class Names(Type):
    """Names with commas between them, each once: of these, or any if it has no list. One of `alone` has no other
    name with it."""

    def __init__(self, *choices: str, alone: tuple[str, ...] = ()) -> None:
        self._choices = choices and (*choices, *alone)
        self._alone = alone

    def read(self, given: Given) -> tuple[str, ...]:
        from pytest_probe.system.text import check_name

        names = tuple(part.strip() for part in given.text.split(",")) if given.text else ()
        if not all(names):
            raise given.wrong("give names separated by commas, none of them empty")
        for name in self._choices and names:
            check_name(given.name, name, self._choices)
        if len(names) > 1 and any(name in self._alone for name in names):
            raise given.wrong(f"{' and '.join(self._alone)} stand{'s' * (len(self._alone) == 1)} alone")
        return tuple(dict.fromkeys(names))


class Chosen(Names):
    """Some of these names, in the order in which the table has them; "all" for all of them."""

    def __init__(self, *choices: str) -> None:
        super().__init__(*choices, "all")

    def read(self, given: Given) -> tuple[str, ...]:
        named = super().read(given)
        return tuple(name for name in self._choices[:-1] if name in named or "all" in named)


class Modes(Type):
    """Device modes to allow, or "auto" or "none" alone."""

    def read(self, given: Given) -> tuple[str, ...]:
        from pytest_probe.model.device_modes import MODES

        return Names(*MODES, alone=("auto", "none")).read(given)


class Globs(Type):
    """Patterns of names, as records spell them."""

    kind = "list"

    def read(self, given: Given) -> tuple[str, ...]:
        from pytest_probe import frameworks

        return tuple(map(frameworks.signatures().spelled, given.value or ()))


class Namespaces(Type):
    """Modules by the prefix of names of APIs."""

    kind = "list"

    def read(self, given: Given) -> dict[str, str]:
        namespaces = {}
        for line in given.value or ():
            prefix, _, module = (part.strip() for part in line.partition("="))
            if not prefix.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
                raise given.wrong("give lines of the form Prefix=python.module", line)
            namespaces[prefix] = module
        return namespaces


class Place(Type):
    """An absolute path. Runs are compared by the content of the file, whatever its path is."""

    def read(self, given: Given) -> Path | None:
        return given.path

    def identity(self, value: Path | None) -> str | None:
        return None if value is None else content(value)


class ResultsFolder(Place):
    """The folder of a run, which is known by its results."""

    def identity(self, value: Path | None) -> str | None:
        return None if value is None else content(value / RESULTS)


class Folder(Place):
    """A folder that is there. Runs are compared by the names and sizes of its files."""

    def read(self, given: Given) -> Path | None:
        if given.path is not None and not given.path.is_dir():
            raise given.wrong("there is no such folder", str(given.path))
        return given.path

    def identity(self, value: Path | None) -> str | None:
        return None if value is None else _content_of_folder(value)


def _content_of_folder(folder: Path) -> str:
    files = (path for path in folder.rglob("*") if path.is_file())
    return digest(repr(sorted((str(path.relative_to(folder)), path.stat().st_size) for path in files)).encode())


class FileOrFolder(Place):
    """A file, by its content, or a folder, by the names and sizes of its files."""

    def identity(self, value: Path | None) -> str | None:
        return _content_of_folder(value) if value is not None and value.is_dir() else super().identity(value)


@contextmanager
def _writable(given: Given, what: str, folder: Path) -> Iterator[None]:
    """Raises SettingsError where what is done in here fails, or where no file can be made in the folder."""
    from tempfile import TemporaryFile

    try:
        yield
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"give a {what} that can be written: {error.strerror or error}"
        raise given.wrong(reason, str(given.path)) from None


class Report(Place):
    """A file that can be written, in a folder that is there; workers write none, and may be on another machine."""

    def read(self, given: Given) -> Path | None:
        from pytest_probe.system.files import check_replaceable

        path = given.path
        if path is not None and not given.in_worker:
            with _writable(given, "file", path.parent):
                check_replaceable(path)
        return path


class WritableFolder(Place):
    """A folder that can be written, made where it is not there."""

    def read(self, given: Given) -> Path:
        path = given.path
        assert path is not None
        with _writable(given, "folder", path):
            path.mkdir(parents=True, exist_ok=True)
        return path


class Dumps(Type):
    """Files and folders, and what matches a pattern in its place."""

    kind = "list"

    def read(self, given: Given) -> tuple[Path, ...]:
        return tuple(found for path in given.paths for found in self._expanded(given, path))

    def _expanded(self, given: Given, path: Path) -> list[Path]:
        from pytest_probe.errors import DumpError
        from pytest_probe.records import expand_pattern

        try:
            return expand_pattern(path)
        except DumpError as error:
            raise given.wrong(error.problem, str(path)) from None


def content(path: Path) -> str | None:
    """A digest of a file; None where it cannot be read, which is said by what needs it."""
    try:
        return digest(path.read_bytes())
    except OSError:
        return None


def missing_extra(package: str, extra: str) -> str:
    """How to install what is not here; "" where it is."""
    from importlib.util import find_spec

    name = {"ray": "Ray", "xdist": "pytest-xdist"}.get(package, package)
    return "" if find_spec(package) else f"it needs {name}, which is not installed: pip install 'pytest-probe[{extra}]'"


def digest(content: bytes) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"
