"""The parsed settings: frozen, checked, and the same in every process of a run."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from pytest_probe import frameworks
from pytest_probe.baselines.gate import BITS, METRICS
from pytest_probe.core.decoding import one_of
from pytest_probe.core.device_modes import MODES
from pytest_probe.core.printable import printable_line
from pytest_probe.core.regular_file import check_replaceable
from pytest_probe.core.run import RECORDED
from pytest_probe.errors import DumpError, SettingsError
from pytest_probe.options import NAMED, OPTIONS
from pytest_probe.records import asked_for, expanded
from pytest_probe.selection import Selection
from pytest_probe.standards.tools.project_rules import StandardsFile, read_standards_file
from pytest_probe.standards.tools.table import BENCHMARK

if TYPE_CHECKING:
    import pytest

    from pytest_probe.core.dump import Direction

DTYPE_CHOICES = ("recorded", "float64", "float32", "float16", "bfloat16")
INPUTS = ("auto", "generated", "stored")
DIRECTION_CHOICES: Mapping[str, tuple[Direction, ...]] = {
    "both": ("forward", "backward"),
    "forward": ("forward",),
    "backward": ("backward",),
}
# What a command that runs one case again repeats of the command line.
REPEATED = (
    "fuzz", "inputs", "seed", "mode", "time-budget", "time-limit", "standard", "allow", "repeat", "flops",
    "reference-device", "benchmark", "gate",
)  # fmt: skip
ALONE = ("auto", "none")
SAVE = ("failing", "all")
SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# What --probe-mode asks for.
ACCURACY, TIME, MEMORY = "acc", "time", "mem"
CONFIG_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


@dataclass(frozen=True, slots=True)
class Examples:
    """How many calls of an API are drawn; derandomized: the same ones each time."""

    count: int
    derandomized: bool = False


PROFILES: Mapping[str, Examples] = {
    "quick": Examples(25, derandomized=True),
    "thorough": Examples(1_000),
    "nightly": Examples(10_000),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for.

    dumps are absolute paths of files and folders as given, dump_files the dumps that they stand for; devices is empty
    where the framework's default is meant.
    rules is what standards_file says. fuzz is None where recorded calls are checked. given maps the options that are
    not at their default to their value as text, from_ini names those that an ini file set.
    """

    dumps: tuple[Path, ...] = ()
    dump_files: tuple[Path, ...] = ()
    devices: tuple[str, ...] = ()
    inputs: str = "auto"
    data_dir: Path | None = None
    seed: int = 0
    selection: Selection = field(default_factory=Selection)
    standard: str = "auto"
    standards_file: Path | None = None
    rules: StandardsFile = field(default_factory=StandardsFile)
    allow: tuple[str, ...] = ("auto",)
    repeat: int = 1
    mode: tuple[str, ...] = (ACCURACY,)
    time_budget: float = 0.05
    time_limit: float | None = None
    flops: float = 2e10
    reference_device: str = "cpu"
    benchmark: Path | None = None
    baseline: Path | None = None
    update: bool = False
    gate: str = METRICS
    markdown: Path | None = None
    html: Path | None = None
    history: Path | None = None
    fuzz: Examples | None = None
    fuzz_save: Path | None = None
    strict: bool = False
    emulate: bool = False
    out: Path | None = None
    save: Literal["failing", "all"] | None = None
    resume: bool = False
    shard: tuple[int, int] | None = None
    unique: bool = False
    cache: Path | None = None
    cache_size: int = 10**10
    timeout: float = 300.0
    isolate: bool = False
    cluster: str | None = None
    cluster_resource: str | None = None
    cluster_ship: int = 2 * 10**9
    collect: bool = False
    namespaces: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    from_ini: frozenset[str] = frozenset()

    @property
    def judges(self) -> bool:
        """Are results judged?"""
        return ACCURACY in self.mode

    @property
    def times(self) -> bool:
        return TIME in self.mode

    @property
    def plots(self) -> bool:
        """Is the data of plots made?"""
        return self.out is not None or self.html is not None

    @property
    def has_run_files(self) -> bool:
        """Is a page or a history written?"""
        return self.html is not None or self.history is not None

    @property
    def counts_memory(self) -> bool:
        return MEMORY in self.mode

    @property
    def measures(self) -> bool:
        """Is anything measured beside, or in the place of, judging?"""
        return self.times or self.counts_memory

    def described(self) -> dict[str, Any]:
        """All settings as plain data, for `run.json`."""
        selection = self.selection
        return {
            "dumps": [printable_line(str(path)) for path in self.dumps],
            "devices": list(self.devices),
            "dtypes": [dtype or "recorded" for dtype in selection.dtypes],
            "inputs": self.inputs,
            "data_dir": str(self.data_dir) if self.data_dir else None,
            "seed": self.seed,
            "apis": list(selection.apis),
            "skip_apis": list(selection.skip_apis),
            "directions": list(selection.directions),
            "standard": self.standard,
            "standards_file": str(self.standards_file) if self.standards_file else None,
            "allow": list(self.allow),
            "repeat": self.repeat,
            "mode": list(self.mode),
            "time_budget": self.time_budget,
            "time_limit": self.time_limit,
            "flops": "inf" if self.flops == math.inf else self.flops,
            "reference_device": self.reference_device,
            "benchmark": None if self.benchmark is None else str(self.benchmark),
            "baseline": None if self.baseline is None else str(self.baseline),
            "gate": self.gate,
            "fuzz": None if self.fuzz is None else self.fuzz.count,
            "strict": self.strict,
            "emulate": self.emulate,
            "save": self.save,
            "shard": "/".join(map(str, self.shard)) if self.shard else None,
            "unique": self.unique,
            "cache": None if self.cache is None else str(self.cache),
            "cache_size": self.cache_size,
            "timeout": self.timeout,
            "cluster": self.cluster,
            "cluster_resource": self.cluster_resource,
            "namespaces": dict(self.namespaces),
        }

    def command(self, target: str, dtype: str | None, device: str | None) -> str:
        """The command line that runs one case again. target names it, quoted and ready for a shell."""
        words = ["pytest", target]
        if device is not None:
            words.append(_option("device", device))
        if dtype is not None:
            words.append(_option("dtype", dtype))
        elif "dtype" in self.from_ini:
            words.append(_option("dtype", "recorded"))
        words += [_option(name, self.given[name]) for name in REPEATED if name in self.given]
        given = (name for name in self.given if name not in self.from_ini)
        paths = (name for name in given if name in ("data-dir", "standards-file", "baseline"))
        words += [_option(name, self.given[name]) for name in paths]
        words += [NAMED[name].flag for name in ("strict", "emulate", "unique") if getattr(self, name)]
        return " ".join(words)


def parse(config: pytest.Config, *, paths_given: bool) -> Settings:
    """Read and check every option. paths_given: the command line has positional paths, so an ini's dumps are out.

    Raises SettingsError naming the option, its value and what would do.
    """
    raw = _Raw(config)
    out, standards_file = raw.paths("out"), raw.paths("standards-file")
    rules = read_standards_file(standards_file[0]) if standards_file else StandardsFile()
    dumps = () if paths_given and raw.is_ini("dump") else _dumps(raw)
    settings = Settings(
        dumps=dumps,
        dump_files=tuple(dict.fromkeys(file for path in dumps for file in _dump_files(raw.name("dump"), path))),
        devices=_comma_list(raw, "device"),
        inputs=_choice(raw, "inputs", INPUTS),
        data_dir=_data_dir(raw),
        seed=_seed(raw),
        selection=_selection(raw, rules),
        standard=raw.text("standard"),
        standards_file=standards_file[0] if standards_file else None,
        rules=rules,
        allow=_modes(raw),
        repeat=_repeat(raw),
        mode=_mode(raw),
        time_budget=_time_budget(raw),
        time_limit=_time_limit(raw),
        flops=_flops(raw),
        reference_device=raw.text("reference-device"),
        benchmark=next(iter(raw.paths("benchmark")), None),
        baseline=next(iter(raw.paths("baseline")), None),
        update=bool(raw.value("baseline-update")),
        gate=_choice(raw, "gate", (METRICS, BITS)),
        markdown=next(iter(raw.paths("markdown")), None),
        html=_page(raw),
        history=_writable(raw, "history"),
        fuzz=_fuzz(raw),
        fuzz_save=next(iter(raw.paths("fuzz-save")), None),
        strict=bool(raw.value("strict")),
        emulate=bool(raw.value("emulate")),
        out=out[0] if out else None,
        save=_choice(raw, "save", SAVE) if raw.value("save") else None,  # type: ignore[arg-type]
        resume=bool(raw.value("resume")),
        shard=_shard(raw),
        unique=bool(raw.value("unique")),
        cache=_cache(raw),
        cache_size=_size(raw, "cache-size"),
        timeout=_timeout(raw),
        isolate=bool(raw.value("isolate")),
        cluster=_cluster(raw),
        cluster_resource=raw.text("cluster-resource") or None,
        cluster_ship=_size(raw, "cluster-ship"),
        collect=bool(raw.value("collect")),
        namespaces=_namespaces(raw),
        given=raw.given(),
        from_ini=frozenset(option.name for option in OPTIONS if raw.is_ini(option.name)),
    )
    _check_recorded(raw, settings)
    _check_times(raw, settings)
    _check_cluster(raw, settings)
    if settings.standard == BENCHMARK and settings.benchmark is None:
        wanted = f"it needs another run to compare with: add {NAMED['benchmark'].flag}=DIR, that run's --probe-out"
        raise SettingsError(raw.name("standard"), BENCHMARK, wanted)
    if settings.baseline is None:
        for name in ("baseline-update", "gate"):
            if raw.is_given(name):
                wanted = "it needs a baseline: add --probe-baseline=FILE"
                raise SettingsError(raw.name(name), raw.text(name), wanted)
    if settings.fuzz_save is not None and settings.fuzz is None:
        wanted = f"it keeps what a search finds: add {NAMED['fuzz'].flag}=N"
        raise SettingsError(raw.name("fuzz-save"), str(settings.fuzz_save), wanted)
    if settings.save and settings.out is None:
        raise SettingsError(raw.name("save"), settings.save, "it needs a folder: add --probe-out=DIR")
    if settings.resume and settings.out is None:
        raise SettingsError(
            raw.name("resume"), True, "it needs the folder of the run to go on with: add --probe-out=DIR"
        )
    return settings


def check_name(option: str, value: str, choices: Iterable[str]) -> str:
    """The value, where it is one of the choices. Raises SettingsError with the closest of them otherwise."""
    choices = tuple(choices)
    if value in choices:
        return value
    raise SettingsError(option, value, one_of(choices, value))


def moves_rootdir(root: Path, path: Path) -> bool:
    """Would this path as a positional argument make pytest choose another rootdir, with another ini file?"""
    if not path.is_relative_to(root):
        return True
    below = (folder for folder in path.parents if folder != root and folder.is_relative_to(root))
    return any((folder / name).is_file() for folder in below for name in (*CONFIG_FILES, "setup.py"))


class _Raw:
    """The values as the user wrote them: command line before ini before default."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cli = {o.name: config.getoption(o.key, None) if o.cli else None for o in OPTIONS}
        for name, value in self._cli.items():
            if any(isinstance(text, str) and not text.strip() for text in _texts(value)):
                raise SettingsError(NAMED[name].flag, "", "give a value, or leave the option out")
        self._ini = {o.name: self._read_ini(o.key, o.kind) if o.ini else None for o in OPTIONS}

    @property
    def in_worker(self) -> bool:
        """Is this a worker of pytest-xdist?"""
        return hasattr(self._config, "workerinput")

    def value(self, name: str) -> Any:
        for source in (self._cli, self._ini):
            if source[name] not in (None, [], ""):
                return source[name]
        return NAMED[name].default

    def text(self, name: str) -> str:
        return str(self.value(name) or "")

    def is_ini(self, name: str) -> bool:
        return self._cli[name] in (None, [], "") and self._ini[name] not in (None, [], "", False)

    def is_given(self, name: str) -> bool:
        return self._cli[name] not in (None, [], "") or self.is_ini(name)

    def name(self, name: str) -> str:
        """How the user set it: "--probe-seed", or "probe_seed in pyproject.toml"."""
        option = NAMED[name]
        if not self.is_ini(name):
            return option.flag
        return f"{option.key} in {self._config.inipath.name}" if self._config.inipath else option.key

    def given(self) -> dict[str, str]:
        return {o.name: str(self.value(o.name)) for o in OPTIONS if self.value(o.name) not in (None, False, o.default)}

    def paths(self, name: str) -> tuple[Path, ...]:
        """Absolute: from the invocation folder, or the ini file's where that set them."""
        value = self.value(name)
        values = [value] if isinstance(value, str) else value or []
        base = self._config.invocation_params.dir
        if self.is_ini(name) and self._config.inipath:
            base = self._config.inipath.parent
        return tuple(Path(os.path.normpath(base / Path(text).expanduser())) for text in values)

    def _read_ini(self, key: str, kind: str) -> Any:
        import pytest

        try:
            return self._config.getini(key)
        except (TypeError, ValueError, pytest.UsageError) as error:
            wanted = {"list": "a list of strings", "flag": "true or false", "int": "a whole number"}.get(
                kind, "a string"
            )
            raise SettingsError(key, _last_quoted(str(error)), f"give {wanted}") from None


def _texts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _last_quoted(message: str) -> str:
    """The value that pytest or Python complains of, which ends their message in quotes; else the message."""
    found = re.search(r"'([^']*)'$", message)
    return found[1] if found else message


def _option(name: str, value: str) -> str:
    return f"{NAMED[name].flag}={shlex.quote(value)}"


def _choice(raw: _Raw, name: str, choices: tuple[str, ...]) -> str:
    return check_name(raw.name(name), raw.text(name), choices)


def _comma_list(raw: _Raw, name: str) -> tuple[str, ...]:
    text = raw.text(name)
    values = tuple(part.strip() for part in text.split(",")) if text else ()
    if not all(values):
        raise SettingsError(raw.name(name), text, "give names separated by commas, none of them empty")
    return tuple(dict.fromkeys(values))


def _data_dir(raw: _Raw) -> Path | None:
    path = next(iter(raw.paths("data-dir")), None)
    if path is not None and not path.is_dir():
        raise SettingsError(raw.name("data-dir"), str(path), "there is no such folder")
    return path


def _modes(raw: _Raw) -> tuple[str, ...]:
    """Device modes to allow, or "auto" or "none" alone."""
    values = tuple(check_name(raw.name("allow"), mode, (*MODES, *ALONE)) for mode in _comma_list(raw, "allow"))
    if len(values) > 1 and any(value in ALONE for value in values):
        raise SettingsError(raw.name("allow"), raw.text("allow"), "auto and none stand alone")
    return values


def _seed(raw: _Raw) -> int:
    text = raw.text("seed") or "0"
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise SettingsError(raw.name("seed"), text, "give a whole number from 0 to 2**63 - 1")
    return int(text)


def _fuzz(raw: _Raw) -> Examples | None:
    """Raises SettingsError also where hypothesis is not installed."""
    text = raw.text("fuzz")
    if not text:
        return None
    if text in PROFILES:
        found = PROFILES[text]
    elif text.isascii() and text.isdigit() and 1 <= int(text) < 2**31:
        found = Examples(int(text))
    else:
        raise SettingsError(raw.name("fuzz"), text, f"give a number of calls, 1 or more, or {', '.join(PROFILES)}")
    if importlib.util.find_spec("hypothesis") is None:
        wanted = "it needs hypothesis, which is not installed: pip install 'pytest-probe[fuzz]'"
        raise SettingsError(raw.name("fuzz"), text, wanted)
    return found


def _repeat(raw: _Raw) -> int:
    text = raw.text("repeat")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**31:
        raise SettingsError(raw.name("repeat"), text, "give a whole number, 1 or more")
    return int(text)


def _flops(raw: _Raw) -> float:
    text = raw.text("flops")
    value = _number(text)
    if not value >= 1:
        raise SettingsError(raw.name("flops"), text, "give a number of operations, as 2e10, or inf to sample nothing")
    return value


def _timeout(raw: _Raw) -> float:
    text = raw.text("timeout")
    value = _number(text)
    # The timer counts nanoseconds in 64 bits.
    if not 0 <= value < 1e9:
        raise SettingsError(raw.name("timeout"), text, "give seconds, 0 or more; 0 is no limit")
    return value


def _cache(raw: _Raw) -> Path | None:
    """The folder, made where it is not there. Raises SettingsError where nothing can be written into it."""
    path = next(iter(raw.paths("cache")), None)
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        wanted = f"give a folder that can be written: {error.strerror or error}"
        raise SettingsError(raw.name("cache"), str(path), wanted) from None
    return path


def _page(raw: _Raw) -> Path | None:
    """Raises SettingsError also where what makes the page is not installed."""
    path = _writable(raw, "html")
    if path is not None and importlib.util.find_spec("jinja2") is None:
        wanted = "it needs jinja2, which is not installed: pip install 'pytest-probe[report]'"
        raise SettingsError(raw.name("html"), str(path), wanted)
    return path


def _writable(raw: _Raw, name: str) -> Path | None:
    """The file, in a folder that is there. Raises SettingsError where nothing can be written there; workers write
    nothing, and may be on another machine."""
    path = next(iter(raw.paths(name)), None)
    if path is None or raw.in_worker:
        return path
    try:
        check_replaceable(path)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        wanted = f"give a file that can be written: {error.strerror or error}"
        raise SettingsError(raw.name(name), str(path), wanted) from None
    return path


def _size(raw: _Raw, name: str) -> int:
    """Bytes."""
    text = raw.text(name)
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kMGT]?)B", text)
    size = 0 if match is None else int(float(match[1]) * SIZES[match[2]])
    if not size:
        raise SettingsError(raw.name(name), text, "give a size, as 500MB or 10GB")
    return size


def _cluster(raw: _Raw) -> str | None:
    """Raises SettingsError also where Ray is not installed."""
    text = raw.text("cluster")
    for name in () if text else ("cluster-resource", "cluster-ship"):
        if raw.is_given(name) and not raw.is_ini(name):
            raise SettingsError(raw.name(name), raw.text(name), "it needs a cluster: add --probe-cluster=ray")
    if not text:
        return None
    if not re.fullmatch(r"ray|ray://[^\s/]+:[0-9]{1,5}", text):
        raise SettingsError(raw.name("cluster"), text, "give ray, or ray://HOST:PORT")
    if importlib.util.find_spec("ray") is None:
        wanted = "it needs Ray, which is not installed: pip install 'pytest-probe[cluster]'"
        raise SettingsError(raw.name("cluster"), text, wanted)
    return text


def _mode(raw: _Raw) -> tuple[str, ...]:
    return tuple(check_name(raw.name("mode"), name, (ACCURACY, TIME, MEMORY)) for name in _comma_list(raw, "mode"))


def _time_budget(raw: _Raw) -> float:
    value = _number(raw.text("time-budget"))
    if not 0 <= value < 1e6:
        raise SettingsError(raw.name("time-budget"), raw.text("time-budget"), "give seconds, 0 or more, as 0.05")
    return value


def _time_limit(raw: _Raw) -> float | None:
    text = raw.text("time-limit")
    if not text:
        return None
    value = _number(text)
    if not 0 < value < math.inf:
        raise SettingsError(raw.name("time-limit"), text, "give a factor above 0, as 1.15")
    return value


def _number(text: str) -> float:
    """NaN for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_times(raw: _Raw, settings: Settings) -> None:
    """What a run that measures cannot do besides, and what a limit needs."""
    measured = [name for name in settings.mode if name != ACCURACY]
    for name, asked in (("fuzz", settings.fuzz is not None), ("emulate", settings.emulate)):
        if measured and asked:
            wanted = (
                f"with {raw.name('mode')}={','.join(settings.mode)} the device's own calls are measured; leave it out"
            )
            raise SettingsError(raw.name(name), raw.text(name), wanted)
    if settings.time_limit is None:
        return
    limit = raw.text("time-limit")
    if not settings.times and not raw.is_ini("time-limit"):
        raise SettingsError(raw.name("time-limit"), limit, f"no times are measured: add {NAMED['mode'].flag}=acc,time")
    if settings.times and settings.benchmark is None and settings.baseline is None:
        wanted = "it needs times to compare with: add --probe-benchmark=DIR or --probe-baseline=FILE"
        raise SettingsError(raw.name("time-limit"), limit, wanted)


def _check_cluster(raw: _Raw, settings: Settings) -> None:
    """What goes with no cluster."""
    for name, asked in (("fuzz", settings.fuzz is not None), ("isolate", settings.isolate)):
        if settings.cluster is not None and asked:
            wanted = f"with {raw.name('cluster')} cases of dumps run, each in a process of its device; leave it out"
            raise SettingsError(raw.name(name), raw.text(name), wanted)


def _shard(raw: _Raw) -> tuple[int, int] | None:
    text = raw.text("shard")
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SettingsError(raw.name("shard"), text, "give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
    return int(match[1]), int(match[2])


def _check_recorded(raw: _Raw, settings: Settings) -> None:
    """Stored outputs belong to the stored inputs, in the recorded dtype, and cannot be computed again."""
    if RECORDED not in settings.devices:
        return
    for name, alone in (
        ("device", settings.devices == (RECORDED,)),
        ("inputs", settings.inputs != "generated"),
        ("dtype", settings.selection.dtypes == (None,)),
        ("repeat", settings.repeat == 1),
        ("mode", settings.mode == (ACCURACY,)),
        ("emulate", not settings.emulate),
    ):
        if not alone:
            wanted = f"--probe-device={RECORDED} judges what the dump stored, and no device runs; leave it out"
            raise SettingsError(raw.name(name), raw.text(name), wanted)


def _selection(raw: _Raw, rules: StandardsFile) -> Selection:
    dtypes = [check_name(raw.name("dtype"), dtype, DTYPE_CHOICES) for dtype in _comma_list(raw, "dtype")]
    return Selection(
        apis=tuple(map(frameworks.signatures().spelled, raw.value("api") or ())),
        skip_apis=tuple(map(frameworks.signatures().spelled, raw.value("skip-api") or ())),
        directions=DIRECTION_CHOICES[_choice(raw, "direction", tuple(DIRECTION_CHOICES))],
        dtypes=tuple(None if dtype == "recorded" else dtype for dtype in dtypes),
        white_list=rules.white_list,
        black_list=rules.black_list,
    )


def _namespaces(raw: _Raw) -> dict[str, str]:
    namespaces = {}
    for line in raw.value("namespaces") or ():
        prefix, _, module = (part.strip() for part in line.partition("="))
        if not prefix.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise SettingsError(raw.name("namespaces"), line, "give lines of the form Prefix=python.module")
        namespaces[prefix] = module
    return namespaces


def _dumps(raw: _Raw) -> tuple[Path, ...]:
    """The files and folders that were given, with those that match a pattern in its place."""
    return tuple(found for path in raw.paths("dump") for found in _expanded(raw.name("dump"), path))


def _expanded(option: str, path: Path) -> list[Path]:
    try:
        return expanded(path)
    except DumpError as error:
        raise SettingsError(option, str(path), error.problem) from None


def _dump_files(option: str, path: Path) -> list[Path]:
    found = asked_for(option, path)
    for file in found:
        _check_utf8(option, file)
        if "[" in str(file) or "::" in str(file):
            wanted = "pytest cannot address a path with '[' or '::' in it; rename it or link to it"
            raise SettingsError(option, str(file), wanted)
    return found


def _check_utf8(option: str, path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise SettingsError(option, str(path), "its name is not UTF-8; rename it or link to it") from None
