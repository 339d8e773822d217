"""`pytest-probe doctor`."""

from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.cli import main
from pytest_probe.frameworks.base import Framework


def test_doctor_says_what_a_run_would_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert titles[:2] == ["python", "pytest-probe"]
    assert {*frameworks.MODULES.values(), "kernels", "parallel", "online"} <= set(titles)
    assert any("device cpu; hardware" in line and "modes: " in line for line in lines)
    assert lines[-1].startswith("a run uses    ")
    assert lines[-1].endswith(", by torch")
    assert not any("its calls need" in line for line in lines)


def test_a_framework_that_breaks_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Framework:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(frameworks, "load", broken)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "cannot be used: OSError: libcudart.so.12" in out
    assert out.endswith("a run uses    nothing: no framework can run here\n")
