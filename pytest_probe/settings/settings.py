"""The parsed settings: frozen, checked, and the same in every process of a run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from pytest_probe.options import NAMED
from pytest_probe.selection import Selection
from pytest_probe.settings.choices import ACCURACY, MEMORY, METRICS, TIME
from pytest_probe.standards.tools.project_rules import StandardsFile
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    pass

# What a command that runs one case again repeats of the command line.
REPEATED = (
    "fuzz", "inputs", "seed", "mode", "time-budget", "time-limit", "standard", "allow", "repeat", "flops",
    "reference-device", "benchmark", "gate",
)  # fmt: skip


class Examples(Struct, frozen=True):
    """How many calls of an API are drawn; derandomized: the same ones each time."""

    count: int
    derandomized: bool = False


PROFILES: Mapping[str, Examples] = {
    "quick": Examples(25, derandomized=True),
    "thorough": Examples(1_000),
    "nightly": Examples(10_000),
}


class Settings(Struct, frozen=True):
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


def _option(name: str, value: str) -> str:
    return f"{NAMED[name].flag}={shlex.quote(value)}"
