"""The long description for a package index: README.md without links and pictures that lead into the repository.

`python kernel/readme.py` prints it. A link of that kind keeps its text; a line of such links alone is left out. What is
installed from a clone is installed from the index.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # pragma: no cover
    MetadataHookInterface = object

ROOT = Path(__file__).parent.parent
_RELATIVE = r"\[[^\]]*\]\((?!https?:)[^)]*\)"
_LEFT_OUT = re.compile(rf"^(?:!?{_RELATIVE}(?: · )?)+\n+|^<!--[^\n]*-->\n", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!https?:)[^)]*\)")
CLONE = "There is no package on PyPI yet. Install it from a clone of this repository:\n\n"


def long_description(readme: str) -> str:
    """A README's text, as an index can show it."""
    text = _LINK.sub(r"\g<text>", _LEFT_OUT.sub("", readme))
    return text.replace(CLONE, "").replace("pip install '.[", "pip install 'pytest-probe[")


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """Gives the long description where a wheel or an sdist is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = long_description((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


if __name__ == "__main__":
    print(long_description((ROOT / "README.md").read_text(encoding="utf-8")), end="")
