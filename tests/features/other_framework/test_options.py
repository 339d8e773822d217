"""What --probe-framework and --probe-reference-framework take; Paddle need not be installed."""

from __future__ import annotations

import pytest

from pytest_probe import frameworks
from tests.support.running import refusal

LINE = 'paddle.abs(Tensor([2, 3],"float32"), )\n'


@pytest.mark.parametrize("option", ["framework", "reference-framework"])
def test_a_framework_that_nobody_knows_is_refused(pytester: pytest.Pytester, option: str) -> None:
    pytester.makefile(".txt", calls=LINE)
    said = refusal(pytester, "--probe-dump=calls.txt", f"--probe-{option}=jax")
    said.fnmatch_lines([f"--probe-{option}: 'jax' cannot be used; give an installed one: *torch*"])


def test_one_that_is_not_installed_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(frameworks.MODULES, "paddle", "paddle_of_nowhere")
    pytester.makefile(".txt", calls=LINE)
    result = pytester.runpytest("--probe-dump=calls.txt", "--probe-framework=paddle_of_nowhere")
    result.stderr.fnmatch_lines(
        [
            "ERROR: --probe-framework: 'paddle_of_nowhere' cannot be used; its calls need paddle_of_nowhere, which is "
            "not installed: pip install 'pytest-probe[[]paddle_of_nowhere]'; installed here: torch"
        ]
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--probe-framework=torch", "--probe-device=recorded"), "--probe-framework: 'torch' *no device runs"),
        (
            ("--probe-reference-framework=torch", "--probe-fuzz=2"),
            "--probe-reference-framework: *calls are drawn",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(pytester: pytest.Pytester, args: tuple[str, ...], words: str) -> None:
    pytester.makefile(".txt", calls=LINE)
    refusal(pytester, "--probe-dump=calls.txt", *args).fnmatch_lines([f"{words}*"])
