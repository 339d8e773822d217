"""What --probe-framework and --probe-reference-framework take; Paddle need not be installed."""

from __future__ import annotations

import pytest

from pytest_probe import frameworks
from tests.support.running import refusal

LINE = 'paddle.abs(Tensor([2, 3],"float32"), )\n'


def test_one_that_is_not_installed_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(frameworks.MODULES, "paddle", "paddle_of_nowhere")
    pytester.makefile(".txt", calls=LINE)
    said = refusal(pytester, "--probe-dump=calls.txt", "--probe-framework=paddle_of_nowhere")
    said.fnmatch_lines(
        [
            "--probe-framework: 'paddle_of_nowhere' cannot be used; its calls need paddle_of_nowhere, which is "
            "not installed: pip install 'pytest-probe[[]paddle_of_nowhere]'; installed here: torch"
        ]
    )
