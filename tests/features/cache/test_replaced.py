"""Ways to change what a reference computes: no number from before counts then, and none that it gives counts later.

Each is shown by a fault that a stale reference hides. A reference that is 1.01 times too large is kept, if it is: then
a kernel that is 1.01 times too large passes. A right one is kept: then a wrong one that runs in its place is not seen.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.features.cache import plugin as cache
from tests.check.conftest import Make, normal

X = normal(24, 16)
Changed = Callable[[], AbstractContextManager[None]]


def times(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, 1.01 times too large."""
    return lambda *args, **kwargs: function(*args, **kwargs) * 1.01


@contextmanager
def put(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def kernel(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """A kernel in the place of torch's own, in Python."""
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, function, "CPU")
    try:
        yield
    finally:
        library._destroy()


def tripled(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return 3 * input


forged = types.FunctionType(tripled.__code__.replace(co_filename=F.__file__), F.__dict__, "layer_norm")
# By what is changed: where a layer_norm or another call meets it.
NORM = ("Functional.layer_norm", F.layer_norm, (X, [16]))
SOFTMAX = ("Functional.softmax", F.softmax, (X, -1))
GELU = ("Functional.gelu", F.gelu, (X,))
ELU = ("Functional.elu", F.elu, (X,))
LOSS = ("Functional.cross_entropy", F.cross_entropy, (X, torch.arange(24) % 16))
NORMALIZE = ("Functional.normalize", F.normalize, (X,))
WAYS: dict[str, tuple[Any, Changed]] = {
    "the function itself": (NORM, lambda: put(F, "layer_norm", times(F.layer_norm))),
    "one below": (NORM, lambda: put(torch, "layer_norm", times(torch.layer_norm))),
    "two below": (NORMALIZE, lambda: put(torch.Tensor, "clamp_min", times(torch.Tensor.clamp_min))),
    "a partial below": (ELU, lambda: put(torch._C._nn, "elu", functools.partial(torch._C._nn.softplus))),
    "a compiled function below": (SOFTMAX, lambda: put(torch.Tensor, "softmax", torch.Tensor.log_softmax)),
    "another compiled function": (GELU, lambda: put(F, "gelu", torch._C._nn.softplus)),
    "its code": (NORM, lambda: put(F.layer_norm, "__code__", tripled.__code__)),
    "its defaults": (NORM, lambda: put(F.layer_norm, "__defaults__", (None, None, 0.5))),
    "one that says it is of torch's file": (NORM, lambda: put(F, "layer_norm", forged)),
    "a private one below": (LOSS, lambda: put(torch.nn._reduction, "get_enum", lambda reduction: 2)),
    "a kernel of the dispatcher's": (GELU, lambda: kernel("gelu", lambda x, approximate="none": 3 * torch.sigmoid(x))),
}


def judged(bench: Make, call: Any, folder: Path | None) -> str:
    """The reference's sum, and the verdict on the CPU: the same call, so what is replaced is so on both sides."""
    api, function, arguments = call
    kept = None if folder is None else cache.Cache(folder)
    return repr(bench(api, function, *arguments, request={"cache": kept}).check())


@pytest.mark.parametrize("way", WAYS)
def test_what_was_kept_before_counts_no_more(bench: Make, folder: Path, way: str) -> None:
    call, changed = WAYS[way]
    right = judged(bench, call, folder)
    with changed():
        wrong = judged(bench, call, None)
        assert judged(bench, call, folder) == wrong
    assert judged(bench, call, folder) == right == judged(bench, call, None)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_changed_one_gives_is_not_used_later(bench: Make, folder: Path, way: str) -> None:
    call, changed = WAYS[way]
    with changed():
        wrong = judged(bench, call, folder)
    right = judged(bench, call, None)
    assert wrong != right
    assert judged(bench, call, folder) == right


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("MKL_CBWR", "COMPATIBLE"),
        lambda patch: patch.setenv("ATEN_CPU_CAPABILITY", "default"),
        lambda patch: patch.setattr(torch, "get_num_threads", lambda: 77),
        lambda patch: patch.setattr(cache, "build_of", lambda _: (("libtorch_cpu.so", 1, 0),)),
    ],
    ids=["environment of the products", "environment of the kernels", "threads", "another build"],
)
def test_what_decides_last_digits_names_another_file(
    bench: Make, folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    judged(bench, GELU, folder)
    before = set(os.listdir(folder))
    assert before
    judged(bench, GELU, folder)
    assert set(os.listdir(folder)) == before
    change(monkeypatch)
    judged(bench, GELU, folder)
    assert len(set(os.listdir(folder)) - before) == len(before)


def test_a_kernel_of_python_keeps_all_out(bench: Make, folder: Path) -> None:
    with kernel("tanh", lambda x: x):
        judged(bench, GELU, folder)
        assert not os.listdir(folder)


def test_a_fifo_by_an_entrys_name_is_not_waited_for(bench: Make, folder: Path) -> None:
    expected = judged(bench, GELU, folder)
    for path in folder.iterdir():
        path.unlink()
        os.mkfifo(path)
    assert judged(bench, GELU, folder) == expected
