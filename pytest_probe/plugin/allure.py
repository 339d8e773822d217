"""What allure-pytest is told of an item."""

from __future__ import annotations

import pytest

from pytest_probe.plugin.items import ProbeItem


class Parameters:
    """allure drops what stands in brackets behind an item's name: without a parameter it takes one case in several
    dtypes for repetitions, of which it shows the last."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if isinstance(item, ProbeItem) and item.case.dtype is not None:
            import allure

            allure.dynamic.parameter("dtype", item.case.dtype)
