from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_probe.records import raw_json

_TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text('NaInfity-"\\:, \n', max_size=16),
    st.sampled_from(["NaN", "-Infinity", '"NaN"', "\\NaN", '\\"Infinity\\"', "N", "Infini", ": NaN,"]),
)
_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]), _TEXTS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_TEXTS, _VALUES, min_size=1, max_size=5)
_WORDS = {math.inf: "Infini", -math.inf: "-Infini"}


def _quoted(value: Any) -> Any:
    """What a value becomes when its floats that are not finite are quoted."""
    if isinstance(value, dict):
        return {key: _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "N"
    return _WORDS.get(value, value) if isinstance(value, float) else value


@given(value=_OBJECTS, indent=st.sampled_from([None, 0, 1, 4]), ascii_only=st.booleans(), tight=st.booleans())
@example(value={"a": 'say "NaN", \\', "b": math.nan}, indent=None, ascii_only=True, tight=True)
def test_bare_words_are_quoted_and_nothing_else_is_touched(
    value: dict[str, Any], indent: int | None, ascii_only: bool, tight: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=(",", ":") if tight else None)
    data = bytearray(text.encode())
    raw_json.quote_tokens(data)
    assert len(data) == len(text.encode())
    assert json.loads(data) == _quoted(value)


@given(
    keys=st.lists(st.text("ab.0", min_size=1, max_size=6), min_size=2, max_size=6),
    values=st.lists(st.sampled_from(["1", "{}", '{"a": [ 1, 2 ]}', "null"]), min_size=6, max_size=6),
    spacing=st.tuples(*[st.sampled_from(["", " ", "\n  "])] * 4),
)
@example(keys=["a", "a", "b"], values=["1"] * 6, spacing=("", "", "", ""))
def test_an_evenly_spaced_object_is_complete_unless_a_key_occurs_twice(
    keys: list[str], values: list[str], spacing: tuple[str, str, str, str]
) -> None:
    lead, colon, comma, tail = spacing
    pairs = [f'"{key}":{colon}{value}' for key, value in zip(keys, values, strict=False)]
    raw = msgspec.Raw(f"{{{lead}{f',{comma}'.join(pairs)}{tail}}}".encode())
    if len(set(keys)) > 1:
        assert raw_json.is_complete(raw, raw_json.parse(bytearray(raw))) == (len(set(keys)) == len(keys))


@pytest.mark.parametrize("text", ['{"a": 1, "b":1}', '{"\\u0061": 1, "b": 1}', '{"é": 1, "b": 1}', '{"a": 1}', "{}"])
def test_an_unevenly_spaced_or_escaped_object_is_undecided(text: str) -> None:
    raw = msgspec.Raw(text.encode())
    assert not raw_json.is_complete(raw, raw_json.parse(bytearray(raw)))


def test_members_are_views_into_the_buffer() -> None:
    data = bytearray(b'{"a": [1, NaN], "b": {"c": -Infinity}}')
    found = raw_json.parse(data)
    assert {key: bytes(raw) for key, raw in found.items()} == {"a": b'[1, "N"]', "b": b'{"c": "-Infini"}'}
    data[7:8] = b"2"
    assert bytes(found["a"]) == b'[2, "N"]'


def test_a_byte_order_mark_moves_no_offset(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    data = raw_json.read_bytes(path)
    assert data == b'   {"a": 1}'
    assert bytes(raw_json.parse(data)["a"]) == b"1"


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 1', '{"a": 1} x', '{"a" 1}', "NaN", "Infinity-", '{"a": -NaN}', '{"\udc80": 1}']
)
def test_what_is_no_object_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        raw_json.parse(bytearray(text.encode("utf-8", "surrogateescape")))
