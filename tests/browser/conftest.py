"""One browser for the tests of a process, skipped with the reason where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.other_runs import Comparison
from pytest_probe.features.html.page import Page
from pytest_probe.model.result import Result
from pytest_probe.reports.result_set import RunFile
from tests.support.browser import Opened, chromium, missing
from tests.support.made_results import RUN

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

Opener: TypeAlias = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    if missing():
        pytest.skip(missing())
    with chromium() as driver:
        yield driver


@pytest.fixture
def phone(browser: Chrome) -> Iterator[None]:
    """The window is as wide as a phone's."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def opened_anyway(browser: Chrome, tmp_path: Path) -> Opener:
    """Opens the page of a run with these results."""

    def make(results: list[Result], beside: Comparison | None = None, lines: Mapping[str, Any] | None = None) -> Opened:
        collected = Collected()
        for result in results:
            row = collected.add(result)
            if beside is not None:
                beside.add(row, result)
        path = tmp_path / "page.html"
        Page(RunFile.of(RUN), collected, beside, lines).write(path)
        return Opened(browser, path)

    return make


@pytest.fixture
def opened(opened_anyway: Opener) -> Iterator[Opener]:
    """The same. When the test is over, nothing was harmed, asked for or complained of."""
    pages: list[Opened] = []

    def make(*args: Any) -> Opened:
        pages.append(opened_anyway(*args))
        return pages[-1]

    yield make
    assert pages[-1].messages() == []
    assert pages[-1].requests() == []
    assert pages[-1].run("return window.harmed") is None
