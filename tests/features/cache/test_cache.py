"""A warm cache: the same verdicts and metrics, from numbers that were computed under the very same conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import asdict

from pytest_probe.features.cache import plugin as cache_module
from pytest_probe.features.cache.folder import Part
from pytest_probe.features.cache.plugin import Cache
from pytest_probe.model.run import mapped
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.check.conftest import Make, normal
from tests.support.checking import verdicts
from tests.support.devices import Emulated
from tests.support.dumps import unpack

X = normal(64, 48)
BOTH = ("forward", "backward")


def seeded(path: Path, **asked: Any) -> dict[str, str]:
    """Every verdict with its metrics, as text: NaN is NaN. What the device draws goes on from run to run."""
    torch.manual_seed(0)
    return {name: repr(verdict) for name, verdict in verdicts(path, **asked).items()}


@pytest.mark.evidence
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16"], ids=["recorded", "bfloat16"])
@pytest.mark.parametrize("name", ["msprobe-26.2.0/cnn", "msprobe-26.2.0/amp_bf16", "msprobe-26.2.0/cplx_tensor"])
def test_cached_verdicts_and_metrics_are_equal(
    tmp_path: Path, folder: Path, computed: Callable[[], int], name: str, dtype: str | None
) -> None:
    dump = unpack(name, tmp_path)
    expected, without = seeded(dump, dtype=dtype), computed()
    assert seeded(dump, dtype=dtype, cache=Cache(folder)) == expected
    assert computed() > 0.9 * without  # a call that the step makes twice is computed once
    assert seeded(dump, dtype=dtype, cache=Cache(folder)) == expected
    assert computed() < 0.1 * without


def test_cached_verdicts_of_paddle_are_equal(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("paddle")
    from tests.support.paddle_dumps import unpack as unpack_paddle

    dump = unpack_paddle("cnn_random", tmp_path)
    expected = seeded(dump)
    assert seeded(dump, cache=Cache(folder)) == expected
    files = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert files
    assert seeded(dump, cache=Cache(folder)) == expected
    assert {path: path.stat().st_ino for path in folder.iterdir()}.keys() == files.keys()


def another(change: Callable[[torch.Tensor], torch.Tensor]) -> Registry:
    """A project with a device of its own."""
    registry = Registry.default()
    registry.devices["emulated"] = partial(Emulated, change=change)
    return registry


def wrong(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[7] *= 1.01
    return changed


def found(
    bench: Make, folder: Path | None, registry: Registry | None = None, device: str = "cpu", **asked: Any
) -> list[Verdict]:
    """The verdicts on both directions of a gelu."""
    request = {"device": device, "cache": None if folder is None else Cache(folder), **asked}
    made = bench("Functional.gelu", F.gelu, X, backward=True, registry=registry, request=request)
    return [made.check(direction) for direction in BOTH]


def test_another_device_pays_for_itself_alone(bench: Make, folder: Path, computed: Callable[[], int]) -> None:
    found(bench, folder)
    for change, outcome in ((lambda tensor: tensor * (1 + 2.0**-24), "pass"), (wrong, "error")):
        expected = found(bench, None, another(change), "emulated")
        assert [verdict.verdict for verdict in expected] == [outcome] * 2
        found(bench, folder, another(change), "emulated")
        assert computed() > 20
        assert repr(found(bench, folder, another(change), "emulated")) == repr(expected)
        # What explains an error tries arguments that a call refuses, each time anew.
        assert computed() < (1 if outcome == "pass" else 20)


@pytest.mark.parametrize("kept", BOTH)
def test_one_direction_that_was_checked_alone_is_cached(bench: Make, folder: Path, kept: Any) -> None:
    """The forward run comes from the cache then without a graph, and gradients that are not there are computed."""
    expected = found(bench, None)
    for _ in range(2):
        made = bench("Functional.gelu", F.gelu, X, backward=True, request={"cache": Cache(folder)})
        assert repr(made.check(kept)) == repr(expected[BOTH.index(kept)])
    for _ in range(2):
        assert repr(found(bench, folder)) == repr(expected)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "changed",
    [
        {"edit": lambda data: data["Functional.gelu.0.forward"]["input_kwargs"].update(approximate=_text("tanh"))},
        {"edit": lambda data: data["Functional.gelu.0.forward"]["input_args"][0].update(Max=9.0)},
        {"request": {"seed": 1}},
        {"dtype": "float16"},
        {"version": "0"},
        {"package": b"0"},
        {"hooks": {"adjust_inputs": lambda case, arguments: mapped(arguments, _other)}},
    ],
    ids=["plain argument", "statistics", "seed", "dtype", "version", "package", "values"],
)
def test_what_numbers_depend_on_misses(
    bench: Make,
    folder: Path,
    computed: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    changed: Mapping[str, Any],
) -> None:
    def run(folder: Path | None, how: Mapping[str, Any]) -> str:
        given = {name: how[name] for name in ("edit", "hooks") if name in how}
        request = {"cache": None if folder is None else Cache(folder), **how.get("request", {})}
        made = bench("Functional.gelu", F.gelu, X, backward=True, request=request, **given)
        return repr([made.check(direction, dtype=how.get("dtype")) for direction in BOTH])

    run(folder, {})
    before = files(folder)
    computed()
    if "version" in changed:
        framework = type(bench("Functional.gelu", F.gelu, X).checker.engines.framework)
        monkeypatch.setattr(framework, "describe", lambda _: {"framework": "torch", "version": changed["version"]})
    if "package" in changed:
        monkeypatch.setattr(cache_module, "package_digest", lambda: changed["package"])
    expected = run(None, changed)
    needed = computed()
    assert run(folder, changed) == expected
    assert computed() == needed > 0
    assert len(files(folder)) == 2 * len(before) == 4
    assert run(folder, changed) == expected
    assert computed() == 0


def _text(value: str) -> dict[str, str]:
    return {"type": "str", "value": value}


def _other(leaf: Any, _: str) -> Any:
    if hasattr(leaf, "array"):
        array = leaf.array.copy()
        array.flat[0] = np.nextafter(array.flat[0], np.float32(9))
        return type(leaf)(array, leaf.requires_grad)
    return leaf


def test_what_draws_random_numbers_is_not_kept(bench: Make, folder: Path) -> None:
    made = bench("Functional.dropout", F.dropout, X, 0.5, True, request={"cache": Cache(folder)})
    assert made.check().verdict == "pass"
    assert not files(folder)


def test_a_function_in_the_place_of_the_frameworks_is_not_kept(
    bench: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(bench, folder)
    before = files(folder)
    gelu = F.gelu
    monkeypatch.setattr(F, "gelu", lambda *args, **kwargs: gelu(*args, **kwargs) + 1)
    made = bench("Functional.gelu", torch.nn.functional.gelu, X, backward=True, request={"cache": Cache(folder)})
    assert [made.check(direction).verdict for direction in BOTH] == ["error", "pass"]
    assert files(folder) == before


def test_a_reference_of_the_projects_is_not_kept(bench: Make, folder: Path) -> None:
    registry = Registry.default()
    registry.references["Functional.gelu"] = lambda x: 2 * F.gelu(x)
    assert [verdict.verdict for verdict in found(bench, folder, registry)] == ["error", "error"]
    assert not files(folder)


def test_a_full_disk_costs_no_verdict(bench: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = repr(found(bench, None))

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Part, "begun", full)
    assert repr(found(bench, folder)) == expected
    assert not files(folder)


def test_what_takes_no_time_is_not_kept(bench: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_MIN_SECONDS_TO_CACHE", 60.0)
    found(bench, folder)
    assert not files(folder)


def test_samples_of_a_large_call_are_cached(bench: Make, folder: Path, computed: Callable[[], int]) -> None:
    x, weight = normal(96, 128), normal(80, 128, seed=1)

    def run(cache: Path | None) -> str:
        request = {"cache": None if cache is None else Cache(cache), "flops": 1e5}
        made = bench("Functional.linear", F.linear, x, weight, backward=True, request=request)
        found = [asdict(made.check(direction)) for direction in BOTH]
        return repr([{name: value for name, value in verdict.items() if name != "parts"} for verdict in found])

    expected = run(None)
    assert "sampled" in expected
    assert run(folder) == expected
    computed()
    assert run(folder) == expected
    assert computed() == 0
