"""What a file is that no reader knows: the text of the error that says so."""

from __future__ import annotations

import re

from pytest_probe.records.paddle_lines.reader import trouble

# Files that users gave in place of a dump, each by how it begins: the message says what it is.
_KNOWN = (
    "known are dumps of msprobe 1.0 to 26.2 (dump.json, with entries under the key 'data'), of the "
    "api_accuracy_checker of 2023 (forward_info_0.json), of ptdbg (a .pkl that is text) and of PaddleAPEX "
    "(forward_rank0.json), and text files with a call of Paddle's in each line"
)
_FORWARD_INFO = "give the forward_info file beside it"
# Bounded, as are the keys of real files: what takes one word behind another is quadratic.
_LINES = 'give lines as paddle.add(Tensor([2, 3],"float32"), 1.0, )'
_TEXT = r'[^"\\]{0,300}'
_KEY = f'"{_TEXT}'
# How pickles of lists, dicts and tuples begin; those of the first protocols are text, or nearly.
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ldtVXK]|[]}]q")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEADER = re.compile(r'\{\s*"task"\s*:[^{]*"level"\s*:')
_KINDS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(rf'\{{\s*{_KEY}\*\d+"\s*:\s*\[\s*"File '),
        "is the stack file of an api_accuracy_checker dump, not the dump",
        _FORWARD_INFO,
    ),
    (
        re.compile(rf'\{{\s*{_KEY}\*\d+"\s*:\s*\['),
        "is the backward_info file of an api_accuracy_checker dump, which belongs to another file",
        _FORWARD_INFO,
    ),
    (
        re.compile(rf'\{{\s*{_KEY}"\s*:\s*\[\s*(?:\[\s*{_KEY}"|"File )'),
        "is the stack file of a dump, not the dump",
        "give the dump.json beside it",
    ),
)


def found_instead(head: bytes) -> tuple[str, str]:
    """What was found in a file that begins with head, and what to do about it."""
    if head.startswith(_UTF16):
        return "is in UTF-16", "save it as UTF-8"
    if _PICKLE.match(head):
        return "is a pickle, which is never unpickled", _KNOWN
    if b"\0" in head:
        return "is not a dump: it is binary", _KNOWN
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if not text:
        return "is empty", "repeat the capture"
    if _HEADER.match(text):
        found = "has the header of a dump but no entries: the key 'data' is missing or is not an object"
        return found, "repeat the capture"
    broken = trouble(head)
    if broken:
        return f"holds no call that can be read: {broken}", _LINES
    for pattern, found, advice in _KINDS:
        if pattern.match(text):
            return found, advice
    if text.startswith("{"):
        keys = re.findall(r'"([^"\\]{1,40})"\s*:', text)[:5]
        found = f"it is JSON with the keys {', '.join(keys)}" if keys else "it is a JSON object without keys"
    else:
        found = f"it begins with {text[:24]!r}"
    return f"is not a dump: {found}", _KNOWN
