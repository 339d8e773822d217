from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_probe.records import raw_json

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
