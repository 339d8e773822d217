"""Counts patterns that plain English does not have: `python docs/prose.py`, a part of make lint.

A page must not have any; the docstrings, comments and messages of the package may have the number that each pattern
allows. Code in pages does not count, nor does docs/options.md, which is written from the package's messages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Each pattern, what to write in its place, and how many the package may have: lower it when you mend some.
PATTERNS = {
    r"beside": ("next to, in addition to, compared with", 17),
    r"told": ("say who knows or says it", 2),
    r"those\s(?:that|which)": ("the noun: the modes that the framework allows", 10),
    r"that which|what (?:is|are) no": ("the noun, or the reverse", 0),
    r"(?:is|are) (?-i:none)(?! of)": ("is not, are not, has no", 1),
    r"hangs? on": ("depends on", 0),
    r"hand(?:s|ed)? on": ("pass on, inherit", 2),
    r"its (?:kin|like)": ("name them", 0),
    r"(?<=, )as (?:of|by) (?:a|an|the|its)": ("for example, or a clause with a verb", 0),
    r"slips?": ("bug", 0),
    r"leaps?|torn": ("the field's word", 2),
}
_FENCE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    """What people read: the files in English at the top, and docs/*.md."""
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))):
        if path.name != "options.md":
            yield path


def found(text: str) -> Iterator[tuple[str, int]]:
    """Each pattern that occurs in a text, and the line."""
    prose = _FENCE.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), text)
    for pattern in PATTERNS:
        for match in re.finditer(rf"\b(?:{pattern})\b", prose, re.IGNORECASE):
            yield pattern, prose.count("\n", 0, match.start()) + 1


def words_of(source: str) -> str:
    """The comments and the strings of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = [token.string for token in tokens if token.type == tokenize.COMMENT]
    constants = [each.value for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant)]
    return "\n".join([*kept, *(each for each in constants if isinstance(each, str) and " " in each)])


def main() -> int:
    troubles = 0
    for path in pages():
        for pattern, line in found(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{line}: {pattern!r}: {PATTERNS[pattern][0]}")
            troubles += 1
    counts = Counter[str]()
    for path in sorted((ROOT / "pytest_probe").rglob("*.py")):
        counts.update(pattern for pattern, _ in found(words_of(path.read_text(encoding="utf-8"))))
    for pattern, (instead, allowed) in PATTERNS.items():
        if counts[pattern] > allowed:
            print(f"pytest_probe has {counts[pattern]} of {pattern!r}, and may have {allowed}: {instead}")
            troubles += 1
    words = sum(bool(re.search(r"\w", word)) for path in pages() for word in path.read_text(encoding="utf-8").split())
    print(f"{len(list(pages()))} pages, {words:,} words; {sum(counts.values())} such patterns in the package")
    return bool(troubles)


if __name__ == "__main__":
    raise SystemExit(main())
