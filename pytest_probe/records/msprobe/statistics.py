"""Where an entry's text has the numbers that its tensors' values decide, and nothing else."""

from __future__ import annotations

import re

_COLON, _COMMA, _END = rb'"\s*:\s*', rb"\s*,\s*", rb"(?=\s*[,}])"
# Of no more digits than float64 surely holds.
_NUMBER = rb"-?[0-9]{1,18}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"
_SHARE = rb"(?:0(?:\.[0-9]+(?:[eE]-[0-9]+)?)?|1(?:\.0)?)"
# A share of zeros that is 0 stays in the text, and so does what is not finite.
_NONE = rb"0(?:\.0*)?(?:[eE][-+]?[0-9]+)?"
_STATISTIC = rb"(?:(?P<largest>Max|Norm)|(?P<least>Min)|Mean)(?:_except_inf_nan|_origin)?"
_KEYS = (
    _STATISTIC + rb"(?=" + _COLON + rb"[-0-9])",
    rb"(?P<address>address)(?=" + _COLON + rb"[0-9]{1,18}" + _END + rb")",
    rb"zeros(?=" + _COLON + _SHARE + _END + rb")(?!" + _COLON + _NONE + _END + rb")",
    rb"mode(?=" + _COLON + rb"\[\s*" + _NUMBER + _COMMA + _SHARE + rb"\s*\])",
    rb"constant_rows(?=" + _COLON + rb"\[\s*" + _SHARE + _COMMA + _NUMBER + rb"\s*\])",
    rb'rng(?=' + _COLON + rb'")',
)  # fmt: skip

# What Dump.statistics says. No plain argument stands directly under such a key: all are objects with a type.
STATISTICS = re.compile(
    rb'(?P<told>"(?:' + rb"|".join(_KEYS) + rb")" + _COLON + rb")"
    rb"(?:(?P<number>" + _NUMBER + rb")" + _END + rb'|\[[^\]"]*\]|"[A-Za-z0-9+/=]*"' + _END + rb")"
)  # fmt: skip
