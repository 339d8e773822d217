"""What computes the references of outputs that a dump of MindSpore stored: torch, by the calls that correspond to those
of the records. MindSpore is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.base import API, Framework
from pytest_probe.frameworks.mapping.framework import translation
from pytest_probe.frameworks.mapping.table import packaged
from pytest_probe.frameworks.mindspore.signatures import (
    MAP,
    NAMESPACES,
    called,
    counterpart,
    entry_of,
    path_of,
    spelled,
)
from pytest_probe.frameworks.python.framework import PythonFramework
from pytest_probe.frameworks.torch import allowlist
from pytest_probe.frameworks.torch.framework import TorchFramework

_KNOWN = ", ".join(NAMESPACES)
# What gives another gradient than torch's of the same name on sample calls: see benchmarks/mindspore_names.py.
UNLIKE = frozenset(("Mint.cholesky_inverse", "Tensor.cholesky_inverse"))
# Why nothing corresponds to a name of these namespaces.
_WITHOUT = {
    "Primitive": "a dump does not have what a primitive was made with",
    "Functional": "no call of torch's is known to correspond to it",
}


def candidates(namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
    """The function of torch's that corresponds to a recorded name. Raises UnknownAPI without one.

    namespaces are the user's.
    """
    if namespace in namespaces:
        return allowlist.candidates(namespace, api, namespaces)
    if f"{namespace}.{api}" in UNLIKE:
        raise UnknownAPI(f"{namespace}.{api}: torch's function of that name gives other numbers on some arguments")
    entry = entry_of(f"{namespace}.{api}")
    if entry is not None:
        path = path_of(f"{namespace}.{api}")
        return (API(called(entry), partial(translation, packaged(MAP), path, False)),)
    native, _, name = counterpart(f"{namespace}.{api}").partition(".")
    if not native:
        raise UnknownAPI(f"{namespace}.{api}: {_WITHOUT.get(namespace, f'{namespace} is not one of {_KNOWN}')}")
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
    yield from map(spelled, packaged(MAP).entries)
    names = {native: namespace for namespace, (_, native) in NAMESPACES.items() if native}
    for api in allowlist.apis():
        native, _, name = api.partition(".")
        if native in names and f"{names[native]}.{name}" not in UNLIKE:
            yield f"{names[native]}.{name}"


class StoredFramework(TorchFramework):
    """torch, for records of MindSpore's."""

    name = "mindspore"
    candidates = staticmethod(candidates)
    apis = staticmethod(apis)
    completions = PythonFramework.completions
    solved = PythonFramework.solved


made: Callable[[], Framework] = StoredFramework  # see frameworks.load
