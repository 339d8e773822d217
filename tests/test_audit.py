"""What the project requires."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("tomllib")

from benchmarks import audit


@pytest.mark.parametrize(
    ("name", "first"),
    [("ray", (2, 54)), ("grpcio", (1, 66, 2)), ("jinja2", (3, 1, 6)), ("setuptools", (78, 1, 1))],
)
def test_no_release_with_a_known_hole_is_allowed(name: str, first: tuple[int, ...]) -> None:
    assert tuple(map(int, audit.floors()[name].split("."))) >= first


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("print('No known vulnerabilities found')", 0, False),
        ("import sys; sys.exit('Found 1 known vulnerability in 1 package')", 1, False),
        ("import sys; sys.exit('ERROR: Dependency not found on PyPI and could not be audited: ray (2.54)')", 1, True),
    ],
)
def test_an_audit_without_data_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: str, status: int, said: bool
) -> None:
    monkeypatch.setattr(audit, "command", lambda requirements: [sys.executable, "-c", code])
    assert audit.main() == status
    assert ("could not reach its data" in capfd.readouterr().out) == said
