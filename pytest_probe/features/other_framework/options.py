"""What the options name that take another framework."""

from __future__ import annotations

from pytest_probe import frameworks
from pytest_probe.option_types import Given, Type
from pytest_probe.system.suggestions import suggestion


class Framework(Type):
    """A framework, as its module is called; None without one."""

    def read(self, given: Given) -> str | None:
        if not given.text:
            return None
        found = [module for name, module in frameworks.MODULES.items() if not frameworks.unavailable(name)]
        if given.text not in frameworks.MODULES.values():
            near = suggestion(found, given.text)
            raise given.wrong(f"give one of those that are installed here: {', '.join(found) or 'none is'}{near}")
        missing = frameworks.unavailable(frameworks.named(given.text))
        if missing:
            raise given.wrong(f"{missing}; installed here: {', '.join(found) or 'none'}")
        return given.text
