from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_probe.capture import snapshot
from pytest_probe.capture.config import read_config
from pytest_probe.capture.dump_files import encode_entry
from pytest_probe.capture.torch.values import Values
from pytest_probe.errors import RecordError
from pytest_probe.model.dump import (
    Call,
    DeviceSpec,
    DtypeSpec,
    MemoryFormatSpec,
    Record,
    SizeSpec,
    Surroundings,
    TensorSpec,
)
from pytest_probe.numerics.dtypes import PACKED, numpy_dtype, unpacked, widen
from pytest_probe.records.fields import DUMP_DTYPES
from pytest_probe.records.msprobe.entries import decode
from pytest_probe.records.raw_json import quote_tokens

pytestmark = pytest.mark.compat

# torch casts to no packed dtype, and prints no number of it.
KNOWN = [getattr(torch, name) for name in DUMP_DTYPES if hasattr(torch, name) and name != PACKED]
DEVICES = [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")]
FORMATS = [torch.preserve_format, torch.contiguous_format, torch.channels_last, torch.channels_last_3d]
WHOLE = st.integers(-(2**63), 2**63 - 1)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of any dtype, in any layout: in order, transposed, every other column, expanded; with NaN, inf and True."""
    dtype = draw(st.sampled_from(KNOWN))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    elements = st.sampled_from([0.0, 1.0, 2.0, 64.0, math.nan, math.inf, -math.inf])
    if not (dtype.is_floating_point or dtype.is_complex):
        elements = st.sampled_from([0.0, 1.0, 2.0, 64.0])
    count = math.prod(shape)
    values = torch.tensor(draw(st.lists(elements, min_size=count, max_size=count)), dtype=torch.float64)
    made = values.to(dtype).reshape(shape)
    layout = draw(st.sampled_from(["in order", "transposed", "skipping", "expanded"]))
    if made.ndim and layout == "transposed":
        made = made.transpose(0, -1)
    elif made.ndim and layout == "skipping":
        made = made[..., ::2]
    elif layout == "expanded":
        made = made.unsqueeze(0).expand(2, *made.shape)
    wants = (dtype in (torch.float32, torch.float64, torch.bfloat16) or dtype.is_complex) and draw(st.booleans())
    return made.requires_grad_(wants)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    has = [dtype for dtype in KNOWN if dtype is not torch.bfloat16 and "float8" not in str(dtype)]
    made: np.ndarray = draw(tensors().filter(lambda tensor: tensor.dtype in has)).detach().numpy()
    return made


LEAVES = st.one_of(
    tensors(),
    arrays(),
    st.none(),
    st.booleans(),
    WHOLE,
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.builds(slice, st.none() | WHOLE, st.none() | WHOLE, st.none() | WHOLE),
    # A reader refuses ranges of more than a million numbers.
    st.builds(
        lambda start, count, step: range(start, start + count * step, step),
        st.integers(-(2**40), 2**40),
        st.integers(0, 2**20),
        st.integers(-(2**20), 2**20).filter(bool),
    ),
    st.just(...),
    st.builds(torch.Size, st.lists(st.integers(0, 2**40), max_size=4)),
    st.sampled_from([*KNOWN, *DEVICES, *FORMATS]),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.complex128, st.complex_numbers()),
    st.builds(np.int64, WHOLE),
)
# A key with a dot in it may be taken for a place inside another.
KEYS = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def read_back(args: list[Any], kwargs: dict[str, Any]) -> Call:
    taking = Values(read_config(None, dump_path="d"))
    with torch.no_grad():
        body = snapshot.ForwardEntry(
            [taking.take(value) for value in args], {key: taking.take(kwargs[key]) for key in kwargs}
        )
    taking.settle()
    text = bytearray(encode_entry(snapshot.NamedEntry("Torch.add.0.forward", body)))
    quote_tokens(text)
    return decode(Path("dump.json"), Record("Torch.add.0", "Torch", "add", 0, bytes(text)), ours=True)


def same(value: Any, found: Any) -> bool:
    """Is this what was passed?"""
    if isinstance(value, torch.Tensor):
        return _same_tensor(value, found) and not found.ndarray
    if isinstance(value, np.ndarray):
        return found.ndarray and _same_values(torch.from_numpy(value.copy()), found)
    if isinstance(value, torch.Size):
        return bool(found == SizeSpec(tuple(value)))
    if isinstance(value, list | tuple):
        return type(found) is type(value) and len(found) == len(value) and all(map(same, value, found))
    if isinstance(value, dict):
        return (
            type(found) is dict and found.keys() == value.keys() and all(same(value[key], found[key]) for key in value)
        )
    for kind, spec in ((torch.dtype, DtypeSpec), (torch.device, DeviceSpec), (torch.memory_format, MemoryFormatSpec)):
        if isinstance(value, kind):
            return bool(found == spec(str(value).removeprefix("torch.")))
    plain = value.item() if isinstance(value, np.generic) else value
    # By their text NaN is NaN, and -0.0 is not 0.0.
    return type(found) is type(plain) and repr(found) == repr(plain)


def _same_tensor(tensor: torch.Tensor, found: Any) -> bool:
    stride = None if tensor.is_contiguous() else tensor.stride()
    looks = (tensor.requires_grad, stride, tensor.data_ptr())
    return looks == (found.requires_grad, found.stride, found.address) and _same_values(tensor.detach(), found)


def _same_values(values: torch.Tensor, found: Any) -> bool:
    if (str(values.dtype), tuple(values.shape)) != (f"torch.{found.dtype}", found.shape):
        return False
    if found.values is not None and list(found.values) != values.reshape(-1).tolist():
        return False
    if values.dtype is torch.bool:
        return found.true == (int(values.sum()) if values.numel() else None)
    wide = values.abs() if values.is_complex() else values.double()
    counts = (int(wide.isnan().sum()), int(wide.isinf().sum()))
    return (found.nan or 0, found.inf or 0) == counts and _same_extremes(wide, found)


def _same_extremes(wide: torch.Tensor, found: TensorSpec) -> bool:
    if not wide.numel():
        return (found.max, found.min) == (None, None)
    wanted = [wide.max().item(), wide.min().item()]
    return np.array_equal(wanted, np.array([found.max, found.min], float), equal_nan=True)


@settings(max_examples=300, deadline=None)
@given(st.lists(TREES, max_size=3), st.dictionaries(KEYS, TREES, max_size=2))
def test_what_is_written_is_read_back(args: list[Any], kwargs: dict[str, Any]) -> None:
    call = read_back(args, kwargs)
    assert same(tuple(args), call.args)
    assert same(kwargs, call.kwargs)
    assert call.surroundings == Surroundings()


@pytest.mark.parametrize(
    ("value", "name"), [(np.timedelta64(1, "s"), "datetime.timedelta"), (iter(()), "builtins.tuple_iterator")]
)
def test_what_no_dump_holds_is_named(value: Any, name: str) -> None:
    with pytest.raises(RecordError, match=rf'input_args\.0\.1\.type: found "{name}"'):
        read_back([[1, value]], {})


@pytest.mark.parametrize("shape", [(4, 6), (512, 64)], ids=["small", "large"])
@pytest.mark.parametrize("transposed", [False, True])
def test_statistics_of_packed_numbers_are_those_of_the_numbers(shape: tuple[int, int], *, transposed: bool) -> None:
    if not hasattr(torch, PACKED):
        pytest.skip("torch has no float4 before 2.8")
    codes = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    tensor = torch.from_numpy(codes).view(getattr(torch, PACKED))
    call = read_back([tensor.t() if transposed else tensor], {})
    numbers = widen(unpacked(codes.view(numpy_dtype(PACKED))))
    found = call.args[0]
    assert (found.dtype, found.shape) == (PACKED, shape[::-1] if transposed else shape)
    assert (found.max, found.min) == (numbers.max(), numbers.min()) == (6.0, -6.0)
    assert found.mean == pytest.approx(numbers.mean())
    assert found.norm == pytest.approx(np.linalg.norm(numbers))
