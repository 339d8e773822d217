"""Recordings that several tests compare, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from pytest_probe import capture
from tests.support import forks, tensor_parallel
from tests.support.other_plugins import Ran
from tests.support.running import by_case, ran
from tests.support.two_sides import Fault, Gpt, Lstm, record

Results: TypeAlias = dict[str, dict[str, Any]]
# Compares two recordings by their names, with further options: the run, and its results by the names of items.
Compare: TypeAlias = Callable[..., tuple[pytest.RunResult, Results]]


def _parallel(folder: Path, *options: str, world: int = 2) -> Path:
    """A layer on so many ranks, with gloo."""
    script, store = tensor_parallel.__file__, folder.with_suffix(".store")
    forks.in_ranks(world, lambda rank: (script, folder, rank, world, store, *options), folder.parent)
    return folder


def layers(folder: Path, inside: float = 0.0, behind: float = 0.0, rounded: int = 99) -> Path:
    """Three layers and a loss; factors are those of one more call inside, and behind them; one tanh may be rounded."""
    weights = [torch.linspace(-1, 1, 36).reshape(6, 6).roll(place).requires_grad_() for place in range(4)]
    with capture(folder, task="tensor"), Fault("tanh", rounded, lambda y: y * (1 + 2**-22)):
        x = torch.linspace(-1, 1, 24).reshape(4, 6)
        for place, weight in enumerate(weights):
            x = torch.tanh(F.linear(x, weight))
            x = x * inside if inside and place == 1 else x
        loss = F.mse_loss(x, torch.ones(4, 6))
        (loss * behind if behind else loss).backward()
    return folder


def norm(folder: Path, value: float = 0.0, *, training: bool = True, eps: float = 1e-6, more: bool = False) -> Path:
    """A few calls without gradients; more: one on the same numbers in another order, and one that writes in place."""
    x = torch.linspace(-1, 1, 24).reshape(4, 6) + value
    torch.manual_seed(0)
    with capture(folder, task="tensor"):
        y = F.layer_norm(torch.exp(x), [6], eps=eps)
        F.dropout(y, 0.5, training)
        F.relu(y, inplace=more)
        if more:
            torch.exp(x.flip(0))
    return folder


def change(folder: Path, file: str, changed: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """What a recording holds of a tensor."""
    (path,) = folder.rglob(f"{file}.pt")
    torch.save(changed(torch.load(path)), path)
    return folder


def emptied(folder: Path) -> Path:
    """One of its files is."""
    next(folder.rglob("Torch.exp.0.forward.output.0.pt")).write_bytes(b"")
    return folder


def wrong_rank(folder: Path) -> Path:
    """As two ranks, of which one has a wrong gelu."""
    right = folder.with_name("two_ranks")
    shutil.copytree(right if right.exists() else _parallel(right), folder)
    change(folder / "step0/rank1", GELU, lambda y: y * 2)
    return folder


EXP, DROPOUT, WEIGHT, GELU = (
    "Torch.exp.0.forward.output.0", "Functional.dropout.0.forward.output.0", "Functional.linear.2.forward.input.1",
    "Functional.gelu.0.forward.output.0",
)  # fmt: skip
PROGRAMS: dict[str, Callable[[Path], Path]] = {
    "gpt": record,
    "again": record,
    "statistics": lambda folder: record(folder, task="statistics"),
    "softmax": lambda folder: record(folder, fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3))),
    "softmax_statistics": lambda folder: record(
        folder, fault=Fault("_softmax", 1, lambda y: y * (1 + 1e-3)), task="statistics"
    ),
    "gelu_backward": lambda folder: record(folder, fault=Fault("gelu_backward", 1, lambda y: y * (1 - 1e-3))),
    "extra": lambda folder: record(folder, lambda: Gpt(extra=True)),
    "recompute": lambda folder: record(folder, lambda: Gpt(recompute=True)),
    "micro_batches": lambda folder: record(folder, parts=2),
    "modules": lambda folder: record(folder, modules=True),
    "compiled": lambda folder: record(
        folder, wrap=lambda model: torch.compile(model, backend="eager"), modules=True, compiled="eager"
    ),
    "apart": lambda folder: record(folder, lambda: Gpt(fused=False), modules=True),
    "eager": lambda folder: record(folder, lambda: Gpt(4).bfloat16()),
    "sdpa": lambda folder: record(folder, lambda: Gpt(4, sdpa=True).bfloat16()),
    "wrong_sdpa": lambda folder: record(
        folder,
        lambda: Gpt(4, sdpa=True).bfloat16(),
        Fault("_scaled_dot_product_flash_attention_for_cpu", 1, lambda y: (y[0] * 1.25, *y[1:])),
    ),
    "lstm": lambda folder: record(folder, Lstm),
    "lstm_wrong": lambda folder: record(
        folder, Lstm, Fault("mkldnn_rnn_layer", 0, lambda y: (y[0] * (1 + 1e-3), *y[1:]))
    ),
    "one_rank": lambda folder: _parallel(folder, world=1),
    "two_ranks": _parallel,
    "two_ranks_wrong": wrong_rank,
    "flipped": lambda folder: _parallel(folder, "flip"),
    "layers": layers,
    "one more": lambda folder: layers(folder, inside=1.002),
    "one in vain": lambda folder: layers(folder, inside=1.0),
    "scaled": lambda folder: layers(folder, behind=1024.0),
    "one more, rounded": lambda folder: layers(folder, inside=1.002, rounded=0),
    "one in vain, rounded": lambda folder: layers(folder, inside=1.0, rounded=0),
    "norm": norm,
    "norm, evaluated": lambda folder: norm(folder, training=False),
    "norm, more": lambda folder: norm(folder, more=True),
    "norm, empty": lambda folder: emptied(norm(folder)),
    "norm, another eps": lambda folder: norm(folder, 2.0**-20, eps=1e-3),
    "stale": lambda folder: change(norm(folder, 0.5), EXP, lambda y: torch.linspace(-1, 1, 24).reshape(4, 6).exp()),
    "wrong dropout": lambda folder: change(norm(folder), DROPOUT, lambda y: y * 3),
    "wrong dropout, evaluated": lambda folder: change(norm(folder, training=False), DROPOUT, lambda y: y * 3),
    "a wrong loss": lambda folder: record(
        folder, parts=2, fault=Fault("nll_loss_forward", 1, lambda y: (y[0] * 1.5, *y[1:]))
    ),
    "another weight": lambda folder: change(
        record(folder), WEIGHT, lambda w: w * (1 + (torch.arange(len(w)) == 3)[:, None])
    ),
}
# All are compared in one run: each pair is a step of both sides.
PAIRS = (
    ("recompute", "gpt"), ("compiled", "modules"), ("extra", "gpt"), ("softmax", "gpt"), ("gpt", "softmax"),
    ("gelu_backward", "gpt"), ("lstm_wrong", "lstm"), ("micro_batches", "gpt"), ("eager", "sdpa"),
    ("eager", "wrong_sdpa"), ("softmax_statistics", "statistics"), ("one more", "layers"), ("layers", "one more"),
    ("scaled", "layers"), ("one in vain", "layers"), ("one more, rounded", "layers"),
    ("one in vain, rounded", "layers"), ("stale", "norm"), ("wrong dropout", "norm"),
    ("wrong dropout, evaluated", "norm, evaluated"), ("a wrong loss", "gpt"), ("norm, empty", "norm, empty"),
    ("norm, another eps", "norm"), ("norm, more", "norm"), ("another weight", "gpt"),
)  # fmt: skip
# These in another one, with a map.
MAPPED = (
    ("apart", "modules"), ("two_ranks", "one_rank"), ("one_rank", "two_ranks"), ("flipped", "one_rank"),
    ("one_rank", "two_ranks_wrong"),
)  # fmt: skip
MAP = """
concat: [{from: [q_proj, k_proj, v_proj], to: qkv_proj}]
dims: {"Functional.linear.1.*": partial, "*": auto}
names: {nothing: blocks}
split: [{from: gate_up, to: [gate, up]}]
ignore: ["*.nothing"]
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The folder of a recording."""
    folder = tmp_path_factory.mktemp("recorded")

    def of(name: str) -> Path:
        return folder / name if (folder / name).exists() else PROGRAMS[name](folder / name)

    yield of
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def compare(pytester: pytest.Pytester, recorded: Callable[[str], Path]) -> Compare:
    def run(a: str, b: str, *options: str) -> tuple[pytest.RunResult, Results]:
        paths = f"--probe-dump={recorded(a)}", f"--probe-against={recorded(b)}"
        result = pytester.runpytest(*paths, "--probe-out=out", *options)
        return result, by_case()

    return run


class Pair(Struct, frozen=True):
    """What the run says of two recordings: their rows by the names of items, and its text as one line."""

    label: str
    rows: Results
    text: str

    def status(self, name: str) -> tuple[str, str]:
        return self.rows[name]["verdict"], self.rows[name]["answers"][0]["pair"]["status"]

    @property
    def wrong(self) -> Mapping[str, str]:
        """The reasons of all that warned or failed."""
        return {name: row["reason"] for name, row in self.rows.items() if row["verdict"] in ("warning", "error")}

    @property
    def in_order(self) -> list[tuple[str, str]]:
        """Items with what they are: forward in the order of calls, then backward in reverse."""
        place = {name: (row["place"] or 0) for name, row in self.rows.items()}
        forward = sorted((name for name in place if name.endswith(".forward")), key=place.__getitem__)
        backward = sorted((name for name in place if name.endswith(".backward")), key=place.__getitem__, reverse=True)
        return [(name, self.status(name)[1]) for name in (*forward, *backward)]


Pairs: TypeAlias = Callable[[str, str], Pair]


def beside(folder: Path, recorded: Callable[[str], Path], pairs: Sequence[tuple[str, str]], *options: str) -> Ran:
    """The run of pairs, each a step; the first step of A has no counterpart."""
    for step, pair in enumerate((("norm", ""), *pairs)):
        for side, name in zip("AB", pair, strict=True):
            if name:
                shutil.copytree(recorded(name) / "step0", folder / side / f"step{step}")
    return ran(
        folder, "--probe-dump=A", "--probe-against=B", "--probe-out=out", "--probe-save=failing", "-rs", *options
    )


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[[str], Path]) -> Ran:
    return beside(tmp_path_factory.mktemp("compared"), recorded, PAIRS)


@pytest.fixture(scope="session")
def mapped(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[[str], Path]) -> Ran:
    folder = tmp_path_factory.mktemp("mapped")
    (folder / "map.yaml").write_text(MAP)
    return beside(folder, recorded, MAPPED, "--probe-against-map=map.yaml")


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Pairs:
    def of(a: str, b: str) -> Pair:
        pairs, name = (MAPPED, "mapped") if (a, b) in MAPPED else (PAIRS, "compared")
        run: Ran = request.getfixturevalue(name)
        step = f"step{pairs.index((a, b)) + 1}/"
        found = [row for row in run.rows if step in row["id"]]
        rows = {row["id"].partition("::")[2]: row for row in found}
        return Pair(found[0]["id"].partition("::")[0], rows, " ".join(run.result.stdout.str().split()))

    return of
