from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from pytest_probe.errors import SettingsError
from pytest_probe.system.decoding import Steps, WrongField, decode


class Part(Struct, forbid_unknown_fields=True):
    low: int = 0
    high: Annotated[int, Meta(description="give more than low")] = field(default=1, name="top")

    def __post_init__(self) -> None:
        if self.high <= self.low:
            raise WrongField("high")


class Whole(Struct, forbid_unknown_fields=True, kw_only=True):
    why: Annotated[str, Meta(description="say why")]
    colour: Literal["red", "green"] = "red"
    colours: Annotated[tuple[Literal["red", "green"], ...], Meta(description="give a list of colours")] = ()
    part: Part = field(default_factory=Part)


def place(steps: Steps) -> str:
    return f"file{list(steps)}"


def test_content_of_the_right_shape_is_decoded() -> None:
    found = decode({"why": "so", "part": {"low": 1, "top": 2}}, Whole, place)
    assert (found.why, found.part.high) == ("so", 2)
    assert decode({"low": "-2"}, Part, place, strict=False).low == -2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "file['why']: of: why: None cannot be used; say why"),
        ({"why": 1}, "file['why']: of: why: 1 cannot be used; say why"),
        ({"colour": "gren"}, "file['colour']: of: colour: 'gren' *; give one of red, green (did you mean green?)"),
        ({"colour": None}, "file['colour']: of: colour: None *; give one of red, green"),
        ({"colours": "red"}, "file['colours']: of: colours: 'red' *; give a list of colours"),
        ({"colours": ["red", "x"]}, "file['colours', 1]: of: colours: 'x' *; give one of red, green"),
        ({"prt": 1}, "file['prt']: of: unknown key 'prt'; did you mean 'part'? Known keys: why, colour, colours, part"),
        ({"part": 1}, "file['part']: of: part: 1 *; give a mapping, `key: value` (in JSON an object)"),
        ({"part": {"high": 2}}, "file['part', 'high']: of: part: unknown key 'high'; known keys: low, top"),
        ({"part": {"low": 2, "top": 1}}, "file['part', 'top']: of: part: top: 1 *; give more than low"),
        ({"part": {"low": 2}}, "file['part', 'top']: of: part: top: None *; give more than low"),
        (["why"], "file[]: of: ['why'] *; give a mapping, `key: value` (in JSON an object)"),
    ],
)
def test_content_of_another_shape_is_refused_with_its_place(content: Any, message: str) -> None:
    if isinstance(content, dict) and "why" not in content and content:
        content["why"] = "so"
    with pytest.raises(SettingsError) as raised:
        decode(content, Whole, place, ("of",))
    assert str(raised.value) == message.replace("*", "cannot be used")


@pytest.mark.parametrize("key", ["", "a\nb`", "a` - at `$.part", "a` - at `$.colours[3]", "a` - at `$.colour"])
def test_a_key_that_looks_like_msgspecs_own_words(key: str) -> None:
    with pytest.raises(SettingsError, match="unknown key "):
        decode({"why": "so", key: 1}, Whole, place)
