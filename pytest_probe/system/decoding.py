"""Files of settings and arguments, decoded into msgspec Structs; what does not fit is a SettingsError that says why.
And JSON of plain data in which a number that is not finite is the text "nan", "inf" or "-inf".

A Struct's annotations define what is accepted: Literal the known words, Meta the bounds, and Meta's description the
advice in an error. Structs forbid unknown fields. A Struct's field may be a Struct, but not a list or mapping of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from pytest_probe.errors import SettingsError, UnknownKey
from pytest_probe.system.text import known_keys, one_of

T = TypeVar("T")
Steps: TypeAlias = tuple[str | int, ...]
MAPPING = "give a mapping, `key: value` (in JSON an object)"

# What msgspec says: the two messages that name a key, and where all name the place.
_MESSAGE = re.compile(
    r"(?:Object (?:contains unknown|missing required) field `(?P<key>.*?)`|.*?)(?: - at `\$(?P<steps>[^`]*)`)?",
    re.DOTALL,
)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class WrongField(ValueError):
    """A Struct's __post_init__ raises it with the name of a field that is not as its description says."""


def decode(
    content: object, kind: type[T], place: Callable[[Steps], str], keys: Sequence[str] = (), *, strict: bool = True
) -> T:
    """The content as this kind of Struct, or as one of a Literal's words.

    place gives the file, and the line where there are lines, of what lies at keys and indices inside the content; keys
    name what holds the content. strict is msgspec's: without it numbers may be texts.

    Raises SettingsError, which names place, keys and what was found, and says what would do, with the closest match.
    """
    try:
        return msgspec.convert(content, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _refusal(_steps(error, kind), content, kind, place, keys) from None


def _steps(error: msgspec.ValidationError, kind: Any) -> Steps:
    """Where the error is: the keys and indices that lead there, a key that is unknown or missing included."""
    message = _MESSAGE.fullmatch(str(error))
    assert message is not None
    steps: list[str | int] = [key or int(index) for key, index in _STEP.findall(message["steps"] or "")]
    if isinstance(error.__cause__, WrongField):
        for step in steps:
            kind = _fields(kind)[str(step)].type
        steps += [key for key, field in _fields(kind).items() if field.name == error.__cause__.args[0]]
    elif message["key"] is not None:
        steps.append(message["key"])
    return tuple(steps)


def _refusal(
    steps: Steps, found: Any, annotation: Any, place: Callable[[Steps], str], keys: Sequence[str]
) -> SettingsError:
    where = [place(steps), *keys]
    for step in steps:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list | tuple) else found
            continue
        fields = _fields(annotation)
        if step not in fields:
            return UnknownKey(": ".join(where), step, known_keys(fields, step))
        where.append(step)
        found, annotation = found.get(step), fields[step].type
    metas = getattr(annotation, "__metadata__", ())
    words, description = _words(annotation), next((meta.description for meta in metas if meta.description), None)
    item = bool(steps) and isinstance(steps[-1], int)
    wanted = one_of(words, str(found)) if words and (item or not description) else description
    return SettingsError(": ".join(where), found, wanted or MAPPING)


def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo]:
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return {field.encode_name: field for field in msgspec.structs.fields(kind)} if is_struct else {}


def _words(annotation: Any) -> tuple[str, ...]:
    """The words of the Literal in it."""
    parts = get_args(annotation)
    return parts if get_origin(annotation) is Literal else tuple(word for part in parts for word in _words(part))


_ENCODER = msgspec.json.Encoder()


def to_json(value: Any) -> bytes:
    """Raises TypeError, ValueError or RecursionError for what JSON does not take."""
    line = _ENCODER.encode(value)
    # JSON has null for what is not finite, and for None.
    if b"null" in line:
        line = _ENCODER.encode(_with_texts(msgspec.to_builtins(value)))
    return line


def json_decoder(type: type[T]) -> msgspec.json.Decoder[T]:
    """Reads what to_json made: a text is taken for a number where a number is wanted."""
    return msgspec.json.Decoder(type, strict=False)


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
