"""Do two functions that are compared take the arguments of the API that they are said to be?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pytest_probe.errors import UnknownAPI
from pytest_probe.execution.likeness import alike, first_line, near
from pytest_probe.execution.replay import Replay, as_single
from pytest_probe.frameworks.base import API, Run
from pytest_probe.records.model import Record
from pytest_probe.standards.facts import facts


def foreign(replayed: Replay, record: Record, reference: Callable[..., Any], namespaces: Mapping[str, str]) -> str:
    """Why the arguments are not those of the record's API; "" where that answers them as the reference does."""
    try:
        apis = replayed.framework.candidates(record.namespace, record.api, namespaces)
    except UnknownAPI as error:
        return str(error)
    if any(api.lookup() is reference for api in apis):
        return ""
    found = [_unlike(replayed, api, reference) for api in apis]
    return found[0] if all(found) else ""


def _unlike(replayed: Replay, api: API, reference: Callable[..., Any]) -> str:
    """What is wrong with the API's answer to the arguments."""
    try:
        found = _answer(replayed, api.lookup())
        drawn = "random" in facts(api.path).classes
        expected = _answer(replayed, reference) if drawn else replayed.expected
    except Exception as error:
        return f"{api.path} does not take these arguments: {type(error).__name__}: {first_line(error)}"
    written = all(near(found.after(name), expected.after(name)) for name in replayed.changed)
    return "" if written and alike(found, expected) else f"{api.path} gives other values for these arguments"


def _answer(replayed: Replay, function: Callable[..., Any]) -> Run:
    framework, arguments = replayed.framework, replayed.candidate.arguments
    drawing = framework.seeded(as_single(framework, function, arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return framework.run(drawing, arguments.args, arguments.kwargs, replayed.reference, None)
