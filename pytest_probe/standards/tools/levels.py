"""The tables of msprobe 26: levels of APIs with their limits, and the least that a benchmark's error counts as."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources

import msgspec


class _Levels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    levels: dict[str, dict[str, float]]
    apis: dict[str, frozenset[str]]
    floors: dict[str, float]


def floor(dtype: str) -> float:
    """The least that a benchmark's error counts as."""
    floors = _packaged().floors
    return floors.get(dtype, floors["float32"])


def limits_of(api: str) -> Mapping[str, float]:
    """How many times the benchmark's error a device's may be, by metric."""
    table, name = _packaged(), api.rpartition(".")[2]
    return table.levels[next((level for level, apis in table.apis.items() if name in apis), "L0")]


@functools.cache
def _packaged() -> _Levels:
    text = resources.files("pytest_probe.standards").joinpath("tables/msprobe26.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=_Levels)
