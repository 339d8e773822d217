"""Everything that users can add to: one object, handed to `pytest_probe_register`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from pytest_probe.frameworks import mapping
from pytest_probe.model.dump import Reader
from pytest_probe.model.run import Device
from pytest_probe.records import READERS
from pytest_probe.standards import STANDARDS, Standard
from pytest_probe.standards.quantisers import Wanted


class Registry(Struct):
    """Readers are asked in their order. Calls and references are keyed by API ("NPU.npu_rms_norm"), namespaces by the
    first part of a recorded name ("NPU": "torch_npu"), devices by the part of --probe-device before ":", compilers
    by what --probe-compile calls them: each makes a function of a function. relations says
    by API what --probe-relations may ask of it, as {"batch": {"x": 0}, "inplace": True}. mappings say by an API's
    full name ("paddle.nn.functional.my_op") what corresponds to it in the framework of --probe-framework, or of
    --probe-reference-framework. quantizers say by API which recorded functions are judged as quantisers, and what
    `pytest_probe.quantizer` gives they state."""

    readers: list[Reader] = field(default_factory=lambda: list(READERS))
    standards: dict[str, Standard] = field(default_factory=lambda: dict(STANDARDS))
    devices: dict[str, Callable[[str], Device]] = field(default_factory=dict)
    calls: dict[str, Callable[..., Any]] = field(default_factory=dict)
    references: dict[str, Callable[..., Any]] = field(default_factory=dict)
    compilers: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)
    relations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    mappings: dict[str, mapping.Mapping] = field(default_factory=dict)
    quantizers: dict[str, Wanted] = field(default_factory=dict)

    @classmethod
    def default(cls) -> Registry:
        return cls()
