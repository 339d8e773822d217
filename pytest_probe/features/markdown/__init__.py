"""--probe-markdown: a page in Markdown about a run, and GitHub's annotations."""

from __future__ import annotations
