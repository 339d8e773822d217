"""Replays calls without a dump."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.device_call import DeviceSource, possible_autocast
from pytest_probe.check.reference import ReferenceRuns
from pytest_probe.check.resolve import Resolver
from pytest_probe.frameworks.torch.framework import TorchDevice, TorchFramework
from pytest_probe.model.dump import Call, Record, TensorSpec
from pytest_probe.model.run import Arguments, Device, Leaf
from pytest_probe.numerics.dtypes import numpy_dtype

FRAMEWORK = TorchFramework()


def spec(text: str) -> TensorSpec:
    """ "float32[2, 3]" as a dump describes it."""
    found = re.fullmatch(r"(\w+)\[(.*)\]", text)
    assert found is not None
    return TensorSpec(found[1], tuple(int(extent) for extent in found[2].split(",") if extent))


def leaf(values: Any, dtype: str = "float32", requires_grad: bool = False) -> Leaf:
    return Leaf(np.asarray(values).astype(numpy_dtype(dtype)), requires_grad)


def normal(*shape: int, dtype: str = "float32", seed: int = 0, requires_grad: bool = False) -> Leaf:
    return leaf(np.random.default_rng(seed).standard_normal(shape), dtype, requires_grad)


def replay(
    name: str,
    *args: Any,
    outputs: Sequence[Any] | None = None,
    backward: bool = False,
    as_recorded: bool = True,
    device: Device | None = None,
    calls: Mapping[str, Callable[..., Any]] | None = None,
    references: Mapping[str, Callable[..., Any]] | None = None,
    namespaces: Mapping[str, str] | None = None,
    budget: float = math.inf,
    **kwargs: Any,
) -> BothSides:
    """Both sides of a call; outputs are what the record has ("float32[2, 3]", or a value), None where it has none.
    budget: FLOP from which on the reference is that of a corner."""
    namespace, api = name.split(".", 1)
    record = Record(f"{name}.0", namespace, api, 0, {}, {} if backward else None)
    wanted = None if outputs is None else tuple(spec(item) if isinstance(item, str) else item for item in outputs)
    resolver = Resolver(FRAMEWORK, calls or {}, references or {}, namespaces or {}, budget=budget)
    call, arguments, tested = (
        Call(args, kwargs, wanted, None),
        Arguments(args, kwargs, None),
        device or TorchDevice("cpu"),
    )
    autocast = possible_autocast(call, arguments, tested.name) if as_recorded else ""
    resolved = resolver.record(record, call, arguments, as_recorded=as_recorded, autocast=autocast)
    return DeviceSource(FRAMEWORK, tested).replay(ReferenceRuns(FRAMEWORK).of(resolved, tested), resolved)
