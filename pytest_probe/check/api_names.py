"""Which API a test means by the name that it gives."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pytest_probe import frameworks
from pytest_probe.check.conditions import Setup
from pytest_probe.errors import SettingsError, UnknownAPI
from pytest_probe.standards.api_class import names


def known_api(setup: Setup, given: str) -> str:
    """An API as dumps call it ("Functional.softmax" for "torch.nn.functional.softmax"); "" for none. Raises
    SettingsError where nothing is known of it, with the API that is meant."""
    registry, signatures = setup.registry, frameworks.signatures(setup.framework.name)
    api = signatures.spelled(given)
    if not api or api in registry.calls or api in registry.references:
        return api
    namespace, _, name = api.partition(".")
    try:
        setup.framework.candidates(namespace, name, registry.namespaces)
    except UnknownAPI:
        # What a table says of a name counts in vendors' namespaces, too.
        if name and not signatures.bind(api, (), {}).native and signatures.canonical(api) in names():
            return api
        raise SettingsError("api", given, _advice(api, {*setup.framework.apis(), *registry.references})) from None
    return api


def _advice(api: str, apis: Iterable[str]) -> str:
    by_name: dict[str, str] = {}
    for each in sorted(apis):
        by_name.setdefault(each.partition(".")[2], each)
        by_name[each] = each
    short = api.rpartition(".")[2]
    close = [short] if short in by_name else [*get_close_matches(api, by_name), *get_close_matches(short, by_name)]
    # Swapped letters are the commonest slip, and no measure of what two words share knows them.
    likeliest = sorted(close, key=lambda name: sorted(name.rpartition(".")[2]) != sorted(short))
    meant = f"; did you mean {by_name[likeliest[0]]}?" if close else ""
    return f"give an API as dumps call it, such as Functional.softmax, or leave it out{meant}"
