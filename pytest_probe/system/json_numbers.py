"""JSON of plain data in which a number that is not finite is the text "nan", "inf" or "-inf"."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
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
