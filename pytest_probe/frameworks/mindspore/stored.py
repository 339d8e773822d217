"""What computes the references of outputs that a dump of MindSpore stored: torch, by the calls that correspond to those
of the records. MindSpore is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.base import API, Framework
from pytest_probe.frameworks.mindspore.signatures import NAMESPACES, counterpart
from pytest_probe.frameworks.torch import allowlist
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.model.dump import Argument

_PRIMITIVE = "Primitive"


def candidates(namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
    """The function of torch's that corresponds to a recorded name. Raises UnknownAPI where there is none.

    namespaces are those that the user added.
    """
    if namespace in namespaces:
        return allowlist.candidates(namespace, api, namespaces)
    native, _, name = counterpart(f"{namespace}.{api}").partition(".")
    if not native:
        known = ", ".join(name for name, (_, native) in NAMESPACES.items() if native)
        reason = "a dump does not have what a primitive was made with" if namespace == _PRIMITIVE else ""
        raise UnknownAPI(f"{namespace}.{api}: {reason or f'{namespace} is not one of {known}'}")
    try:
        # No capture of MindSpore's loses a submodule.
        found = [each for each in allowlist.candidates(native, name, {}) if not each.elsewhere]
    except UnknownAPI:
        found = []
    if not found:
        raise UnknownAPI(f"{namespace}.{api}: torch has no public function of that name to compare it with")
    return tuple(found)


def apis() -> Iterator[str]:
    """The names that `candidates` admits, but for those in namespaces that a user adds."""
    names = {native: namespace for namespace, (_, native) in NAMESPACES.items() if native}
    for api in allowlist.apis():
        native, _, name = api.partition(".")
        if native in names:
            yield f"{names[native]}.{name}"


class StoredFramework(TorchFramework):
    """torch, for records of MindSpore's."""

    name = "mindspore"
    candidates = staticmethod(candidates)
    apis = staticmethod(apis)

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        return ()

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        return ()


def made() -> Framework:
    """See frameworks.load."""
    return StoredFramework()
