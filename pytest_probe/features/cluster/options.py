"""The cluster of --probe-cluster."""

from __future__ import annotations

import re

from pytest_probe.option_types import Given, Type, missing_extra


class Address(Type):
    def read(self, given: Given) -> tuple[str, str | None] | None:
        """The address, and Ray's name for the devices."""
        text, keys = given.keys("resource")
        if not text:
            return None
        if not re.fullmatch(r"ray|ray://[^\s/]+:[0-9]{1,5}", text):
            raise given.wrong("give ray, or ray://HOST:PORT")
        if missing := missing_extra("ray", "cluster"):
            raise given.wrong(missing)
        return text, keys.get("resource")

    def plain(self, value: tuple[str, str | None] | None) -> str | None:
        return None if value is None else ",resource=".join(filter(None, value))
