"""JSON whose values stay raw until they are decoded, and what can be read of a damaged one."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
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


@settings(suppress_health_check=[HealthCheck.too_slow])
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


@settings(suppress_health_check=[HealthCheck.too_slow])
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


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 1', '{"a": 1} x', '{"a" 1}', "NaN", "Infinity-", '{"a": -NaN}', '{"\udc80": 1}']
)
def test_what_is_no_object_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        raw_json.parse(bytearray(text.encode("utf-8", "surrogateescape")))


# How an entry of msprobe begins.
_ENTRY = re.compile(r'"[^"\\\s]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:\s*\{')
_ENTRIES = {f"Torch.add.{number}.forward": {"input_args": [], "output": [{"Max": float("nan")}]} for number in range(4)}


def _dump(entries: dict[str, Any] = _ENTRIES, **header: Any) -> str:
    return json.dumps({"task": "statistics", "level": "L1", **header, "data": entries}, indent=1)


def _salvage(text: str) -> raw_json.Salvage:
    return raw_json.salvage(bytearray(text.encode()), _ENTRY, "data")


def _kept(saved: raw_json.Salvage) -> str:
    return "".join(name.split(".")[2] for name in saved.entries)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ('"input_args": []', '"input_args": [', "023"),
        ('"input_args": []', '"input_args: []', "023"),
        ('"input_args": []', '"input_args" []', "023"),
        ('"input_args": []', '"input_args": [\0\0]', "023"),
        ('"input_args": []', '"input_args": ' + "[" * 100_000, "023"),
        ("NaN", "Na", "023"),
        ("]\n  },", "]\n  }", "0123"),
        ("]\n  },", "]\n  }}},", "0123"),
        ("]\n  },", "]\n  ,", "023"),
        ("]\n  },", "]\n  }, garbage", "0123"),
    ],
)
def test_damage_in_the_middle_costs_one_entry_at_most(old: str, new: str, kept: str) -> None:
    text = _dump()
    at = text.index(old, text.index("add.1"))
    saved = _salvage(text[:at] + new + text[at + len(old) :])
    assert _kept(saved) == kept
    assert saved.holes == 1


def test_words_behind_an_open_string_are_still_understood() -> None:
    text = _dump().replace('"input_args": []', '"input_args: []', 1)
    saved = _salvage(text)
    assert _kept(saved) == "123"
    assert b'"Max": "N"' in bytes(saved.entries["Torch.add.1.forward"])


def test_two_holes_are_counted_and_the_first_is_named() -> None:
    text = (
        _dump()
        .replace('"Torch.add.0.forward": {', '"Torch.add.0.forward": {"')
        .replace('add.2.forward": {', 'add.2.forward": {,')
    )
    saved = _salvage(text)
    assert (_kept(saved), saved.holes) == ("13", 2)
    assert saved.hole is not None
    assert (saved.hole.entry, saved.hole.last) == ("Torch.add.0.forward", "")


def test_a_damaged_header_does_not_cost_the_entries() -> None:
    saved = _salvage(_dump().replace('"statistics"', '"statistics'))
    assert (_kept(saved), saved.holes, saved.header) == ("0123", 1, {})


def test_keys_behind_the_entries_are_read() -> None:
    text = json.dumps({"data": _ENTRIES, "level": "L1"})
    assert _salvage(text + "x").header == {"level": "L1"}
    assert _kept(_salvage(text[:-4])) == "0123"


def test_a_name_that_is_no_utf8_is_a_hole() -> None:
    data = bytearray(_dump().encode().replace(b"add.1", b"add\xff.1"))
    saved = raw_json.salvage(data, _ENTRY, "data")
    assert (_kept(saved), saved.holes) == ("023", 1)


@pytest.mark.parametrize("text", ["", "[]", "x", '{"task": 1}', '{"data": []}', '{"data": {}}', '{"data": {'])
def test_nothing_is_found_in_nothing(text: str) -> None:
    assert _salvage(text).entries == {}


def test_repeated_keys_are_counted() -> None:
    text = b'{"a": NaN, "b":[1, {"a": 2}], "\\u0061": 3, "c": {}}'
    assert raw_json.repeated_keys(text) == {"a": 2}
    assert raw_json.repeated_keys(b"{ }") == {}
