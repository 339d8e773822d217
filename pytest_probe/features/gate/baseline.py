"""A baseline: what was measured of each case before, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.baseline import KeptCase
from pytest_probe.reports.identity import Identity
from pytest_probe.system.files import open_regular

SCHEMA = 1
OPTION = "--probe-baseline"
UPDATE = "--probe-baseline-update"
# What stands in a line's outputs, and in its spread.
COLUMNS = ("name", "rmse", "max_ulp", "mean_ulp", "noise_ratio", "k", "crc", "elements", "carriers")
SPREAD_COLUMNS = ("rmse", "mean_ulp")


class Header(msgspec.Struct, frozen=True):
    """The first line: what the run was that wrote it. dumps maps labels to digests, devices are like run.json's."""

    schema: int
    seed: int
    inputs: str
    standard: str
    repeat: int
    versions: dict[str, str]
    devices: tuple[dict[str, str], ...]
    dumps: dict[str, str]
    outputs: tuple[str, ...] = COLUMNS
    spread: tuple[str, ...] = SPREAD_COLUMNS

    @classmethod
    def of(cls, run: Mapping[str, Any], workers: int) -> Header:
        """Of a run as run.json has it, in so many processes."""
        settings = run["settings"]
        versions = {name: run["versions"][name] for name in ("pytest-probe", "numpy")}
        dumps = {dump["label"]: dump["digest"] for dump in run["dumps"]}
        devices: list[dict[str, str]] = []
        for device in run["devices"]:
            environment = _environment(device, workers)
            if environment not in devices:
                devices.append(environment)
        return cls(
            SCHEMA,
            settings["seed"],
            settings["inputs"],
            settings["standard"],
            settings["repeat"],
            versions,
            tuple(devices),
            dict(sorted(dumps.items())),
        )

    @property
    def identity(self) -> Identity:
        """What another run must have in common, by the fields of a run's identity."""
        return {"seed": self.seed, "inputs": self.inputs, "standard": self.standard}


def _environment(device: Mapping[str, str], workers: int) -> dict[str, str]:
    """Of what is known of a device that which may change its numbers: one of several that are alike is like another,
    and the number of threads counts on a CPU alone."""
    found = dict(device)
    if "hardware" in found:
        found["device"] = found["device"].partition(":")[0]
    threads = found.pop("threads", "")
    if threads and found["device"] == "cpu":
        found["threads"] = str(max(1, int(threads) // workers))
    return found


class Baseline(Struct, frozen=True):
    """A baseline that was read: its first line, and its cases by id."""

    header: Header
    cases: Mapping[str, KeptCase] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, option: str = OPTION) -> Baseline:
        """Raises SettingsError, which names the option, where there is no file or it is no baseline."""
        try:
            with open_regular(path) as file:
                content = file.read()
        except FileNotFoundError:
            wanted = f"there is no such file; a run with {UPDATE} writes it"
            raise SettingsError(option, str(path), wanted) from None
        except OSError as error:
            raise SettingsError(option, str(path), f"it cannot be read: {error.strerror}") from None
        try:
            return cls.parse(content, str(path))
        except ResultsError as error:
            raise SettingsError(option, str(path), f"give a file that {UPDATE} wrote; {error}") from None

    @classmethod
    def parse(cls, content: bytes, name: str) -> Baseline:
        """Of a file's content. Raises ResultsError, which names the line."""
        lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
        if not lines:
            raise ResultsError(name, "it is empty")
        return cls(_header(*lines[0], name), dict(_cases(lines[1:], name)))

    @property
    def has_times(self) -> bool:
        return any(case.time is not None for case in self.cases.values())

    def encoded(self) -> bytes:
        """The file: cases in the order of their ids."""
        lines = [self.header, *(self.cases[id] for id in sorted(self.cases))]
        return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _header(number: int, line: bytes, name: str) -> Header:
    where = f"{name}:{number}"
    line = line.removeprefix(b"\xef\xbb\xbf")
    found = _decoded(line, msgspec.json.Decoder(dict[str, Any]), where)
    if "schema" not in found:
        raise ResultsError(where, "its first line has no schema")
    if found["schema"] != SCHEMA:
        raise ResultsError(where, f"it is of schema {found['schema']}, this version reads {SCHEMA}")
    header: Header = _decoded(line, msgspec.json.Decoder(Header), where)
    return header


def _cases(lines: Iterable[tuple[int, bytes]], name: str) -> Iterator[tuple[str, KeptCase]]:
    decoder = msgspec.json.Decoder(KeptCase)
    seen: dict[str, int] = {}
    for number, line in lines:
        case = _decoded(line, decoder, f"{name}:{number}")
        if case.id in seen:
            raise ResultsError(f"{name}:{number}", f"line {seen[case.id]} has the id {case.id} as well; remove one")
        seen[case.id] = number
        yield case.id, case


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Any], where: str) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(where, str(error)) from None
