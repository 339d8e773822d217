from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_probe.model.dump import DtypeSpec, Lost, TensorSpec
from pytest_probe.numerics.dtypes import PACKED
from pytest_probe.records.fields import DUMP_DTYPES
from pytest_probe.records.paddle_lines import Unparsed, parse


def _float32(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape, requires_grad=True)


def _int64(*shape: int) -> TensorSpec:
    return TensorSpec("int64", shape)


@pytest.mark.parametrize(
    ("line", "args", "kwargs"),
    [
        (
            'paddle.concat(tuple(Tensor([31376, 768],"float32"),Tensor([1, 768],"float32"),), axis=0, )',
            ((_float32(31376, 768), _float32(1, 768)),),
            {"axis": 0},
        ),
        (
            'paddle.concat(list[Tensor(paddle.Size([2, 8]),"float32"),Tensor(paddle.Size([]),"float32"),], -1, )',
            ([_float32(2, 8), _float32()], -1),
            {},
        ),
        ('paddle.sum(Tensor([],"int64"), dtype=Dtype(float16), )', (_int64(),), {"dtype": DtypeSpec("float16")}),
        ("paddle.x(VarType(.FP32), Dtype(paddle.int8), )", (DtypeSpec("float32"), DtypeSpec("int8")), {}),
        ("paddle.x(type(numpy.float32), type(numpy.bool_), )", (DtypeSpec("float32"), DtypeSpec("bool")), {}),
        ("paddle.x(type(int), type(float), )", (DtypeSpec("int64"), DtypeSpec("float64")), {}),
        ("paddle.x(type(bool), type(complex), )", (DtypeSpec("bool"), DtypeSpec("complex128")), {}),
        ("paddle.x(42.1+42.1j, -1e3-2j, 5j, )", (42.1 + 42.1j, -1e3 - 2j, 5j), {}),
        ('paddle.x("float32", "paddle.bool", )', (DtypeSpec("float32"), DtypeSpec("bool")), {}),
        ("paddle.x(complex(1.0,-2.5), complex(0,math.inf), )", (1 - 2.5j, complex(0, math.inf)), {}),
        ("paddle.x(None, True, False, Ellipsis, )", (None, True, False, ...), {}),
        ("paddle.x(math.inf, -math.inf, inf, -inf, )", (math.inf, -math.inf, math.inf, -math.inf), {}),
        ("paddle.x(1, -1, 2., 1e-08, -.5, 1E5, )", (1, -1, 2.0, 1e-08, -0.5, 1e5), {}),
        ('paddle.einsum("bij,jk->bik", "a, (b)] c", "say "x" now", )', ("bij,jk->bik", "a, (b)] c", 'say "x" now'), {}),
        ("paddle.x([1, 2], (3,), )", ([1, 2], (3,)), {}),
        ("  paddle.x(1,axis = 2)\t", (1,), {"axis": 2}),
        ("paddle.x()", (), {}),
        ('paddle.x(Tensor([2, 3],"float32",strides=[3, 1],place="gpu:0"), 1, )', (_float32(2, 3), 1), {}),
        ('paddle.x(Tensor([2,3] , "bfloat16" ), )', (TensorSpec("bfloat16", (2, 3), requires_grad=True),), {}),
        # In an index a tensor gives places, and two of them may be joined.
        ('paddle.Tensor.__getitem__(tuple(Tensor([],"int64"),3,), )', ((_int64(), 3),), {}),
        ('paddle.stack(list[Tensor([],"int64"),Tensor([],"int64"),], )', ([_int64(), _int64()],), {}),
        ('paddle.x(list[Tensor([],"float32"),3,], )', ([_float32(), 3],), {}),
    ],
)
def test_what_lines_say(line: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = parse(line)
    assert (call.args, call.kwargs, call.lost) == (args, kwargs, False)
    assert repr(call.args) == repr(args)  # 1 is no True, a list no tuple


def test_nan() -> None:
    assert [str(value) for value in parse("paddle.x(math.nan, -math.nan, nan, )").args] == ["nan"] * 3


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ('paddle.full(list[Tensor([],"int64"),3,], 1, )', ([Lost(), 3], 1)),
        ('paddle.full(tuple(3,Tensor(paddle.Size([1]),"int32"),), )', ((3, Lost()),)),
        ('paddle.x(slice(None,Tensor([],"int64"),None), )', (Lost(),)),
    ],
)
def test_what_lines_lost(line: str, args: tuple[Any, ...]) -> None:
    call = parse(line)
    assert (call.args, call.lost) == (args, True)


VALUE = "expected an argument: a number, a text, Tensor(...), list[...], tuple(...), slice(...), None, True, False"
ENDS = "column {}: found the end of the line, expected "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "column 1: found the end of the line, expected a call, as paddle.add(...)"),
        ("  # a remark", "column 3: found '# a remark', expected a call, as paddle.add(...)"),
        ("add(1, )", "column 1: found 'add(1, )', expected a call, as paddle.add(...)"),
        ("paddle.add(", f"column 12: found the end of the line, {VALUE}"),
        ("paddle.add(1, ) -> x", "column 17: found '-> x', expected the end of the line"),
        ("paddle.add(1 2, )", "column 14: found '2, )', expected a comma or )"),
        ("paddle.add(1,, )", f"column 14: found ', )', {VALUE}"),
        ("paddle.add(set{1,}, )", f"column 12: found 'set{{1,}}, )', {VALUE}"),
        ("paddle.add(1-2, )", f"column 12: found '1-2, )', {VALUE}"),
        ("paddle.add(x=1, 2, )", "column 17: found '2, )', expected an argument with its name, behind another one"),
        ("paddle.add(x=1, x=2, )", "column 17: found 'x=2, )', expected one value for x"),
        ("paddle.add(list[1,2), )", "column 20: found '), )', expected a comma or ]"),
        ('paddle.add("x, )', "column 12: found '\"x, )', expected a text with a closing quote"),
        ("paddle.add(slice(1,2), )", "column 22: found ', )', expected 3 values in the slice before it"),
        ("paddle.add(slice(1,2,0.5), )", "column 26: found ', )', expected integers or None in the slice before it"),
        ("paddle.add(complex(1,None), )", "column 27: found ', )', expected two numbers in the complex number"),
        ("paddle.add(Dtype(x), )", "column 18: found 'x), )', expected a dtype: one of float16, "),
        ("paddle.add(type(str), )", "column 17: found 'str), )', expected a dtype: one of float16, "),
        ('paddle.add(Tensor([2],"int4"), )', "column 12: found the unknown dtype 'int4', expected one of float16, "),
        ('paddle.add(Tensor([2,-1],"int8"), )', "column 12: found the shape [2,-1], expected at most 64 sizes, "),
        (f'paddle.add(Tensor([{"1," * 65}],"int8"), )', "column 12: found the shape [1,1,1,"),
        (f'paddle.add(Tensor([0,{2**60}],"int8"), )', f"column 12: found the shape [0,{2**60}], expected sizes whose"),
        ('paddle.add(Tensor([2,,3],"int8"), )', "column 12: found the shape [2,,3], expected at most 64 sizes"),
        ('paddle.add(Tensor([2.0],"int8"), )', f"column 12: found 'Tensor([2.0],\"int8\"), )', {VALUE}"),
        (f"paddle.add({'9' * 5000}, )", f"column 12: found '{'9' * 24}', expected an integer of at most 64 bits"),
        (f'paddle.add("{"x" * 70000}", )', "column 12: found a text of 70,000 characters, expected at most 65,536"),
    ],
)
def test_where_a_line_is_no_call(line: str, message: str) -> None:
    with pytest.raises(Unparsed) as caught:
        parse(line)
    assert str(caught.value).startswith(message)


# As the tracer of Paddle 3.3.1 writes a value, for what its lines can hold.
def _written(value: Any, size: bool) -> str:
    if isinstance(value, TensorSpec):
        shape = f"paddle.Size({list(value.shape)})" if size else str(list(value.shape))
        return f'Tensor({shape},"{value.dtype}")'
    if isinstance(value, DtypeSpec):
        return f"Dtype({value.name})"
    if isinstance(value, list):
        return f"list[{''.join(f'{_written(item, size)},' for item in value)}]"
    if isinstance(value, tuple):
        return f"tuple({''.join(f'{_written(item, size)},' for item in value)})"
    if isinstance(value, slice):
        return f"slice({value.start},{value.stop},{value.step})"
    if isinstance(value, complex):
        return f"complex({_written(value.real, size)},{_written(value.imag, size)})"
    if isinstance(value, float) and math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    return f'"{value}"' if isinstance(value, str) else str(value)


_INTS = st.integers(-(2**63), 2**64 - 1)
_FLOATS = st.floats(allow_nan=False)
_TENSORS = st.builds(
    lambda dtype, shape: TensorSpec(dtype, tuple(shape), requires_grad="float" in dtype or "complex" in dtype),
    st.sampled_from([name for name in DUMP_DTYPES if name != PACKED]),  # which Paddle does not have
    st.lists(st.integers(0, 2000), max_size=5),
).filter(lambda spec: spec.size != 1)
_TEXTS = st.text(st.characters(exclude_characters='"\n\r', exclude_categories=["Cs"]), max_size=20).filter(
    lambda text: text.removeprefix("paddle.") not in DUMP_DTYPES
)
_SLICES = st.builds(slice, *(st.none() | _INTS for _ in range(3)))
_LEAVES = st.one_of(
    *(st.none(), st.booleans(), _INTS, _FLOATS, st.complex_numbers(allow_nan=False), _TEXTS, _TENSORS, _SLICES),
    st.builds(DtypeSpec, st.sampled_from(DUMP_DTYPES)),
    st.just(...),
)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple))
_NAMES = st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True).filter(str.isascii)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(_NAMES, min_size=1, max_size=3),
    st.lists(_VALUES, max_size=4),
    st.dictionaries(_NAMES, _VALUES),
    st.booleans(),
)
def test_whatever_a_tool_writes_is_read_back(
    names: list[str], args: list[Any], kwargs: dict[str, Any], size: bool
) -> None:
    api = ".".join(("paddle", *names))
    positional = "".join(f"{_written(value, size)}, " for value in args)
    named = "".join(f"{name}={_written(value, size)}, " for name, value in kwargs.items())
    line = f"{api}({positional}{named})"
    call = parse(line)
    assert (call.api, call.lost) == (api, False)
    assert repr((call.args, call.kwargs)) == repr((tuple(args), kwargs))


_PIECES = st.sampled_from(
    [
        *("paddle.add(", "Tensor(", "paddle.Size(", "[", "]", "(", ")", ",", ", ", "list[", "tuple(", "slice(", "="),
        *('"float32"', '"', "1", "-", "1e5", ".", "None", "math.inf", "complex(", "Dtype(", "type(", "x=", "\x00", "é"),
    ]
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=60)
    | st.lists(_PIECES, max_size=25).map("".join)
    | st.lists(_PIECES).map(lambda x: f"paddle.x({''.join(x)}")
)
@example("paddle.add(" + "list[" * 5)
def test_any_text_is_a_call_or_says_where_it_is_none(text: str) -> None:
    assert 1 <= _column(text) <= len(text) + 1


def _column(text: str) -> int:
    """Where the text is no call; 1 where it is one."""
    try:
        parse(text)
    except Unparsed as error:
        return error.column
    return 1
