"""all-written and guard: what is shown of a fault, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.features.relations.conftest import Ask, broken, found, normal
from tests.support.related import memory_at

MEMORY = ("all-written", "guard")


INDEX = torch.randint(0, 7, (30, 40), generator=torch.Generator().manual_seed(0))
HEALTHY: dict[str, tuple[Any, ...]] = {
    **{
        f"{dtype}": ("Torch.mul", torch.mul, normal(40, 30, dtype=dtype), normal(40, 30, dtype=dtype, seed=1))
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64)
    },
    "integers": ("Functional.embedding", F.embedding, INDEX, normal(7, 5)),
    "one number": ("Torch.sum", torch.sum, normal(8, 12)),
}


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_calls_hold(ask: Ask, name: str, direction: str) -> None:
    calls = {"Torch.sum": lambda x: torch.empty((), dtype=x.dtype).copy_(x.sum())}
    verdict = ask(*HEALTHY[name], names=MEMORY, direction=direction, calls=calls)
    assert {name: each.verdict for name, each in found(verdict).items()} == {"all-written": "pass", "guard": "pass"}


@pytest.mark.parametrize(("element", "words"), [(96, "input.0: written 1 element behind its last"),
                                                (-5, "input.0: written 5 elements before its first")])  # fmt: skip
def test_a_write_is_named_with_its_place(ask: Ask, element: int, words: str) -> None:
    def kernel(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        place = memory_at(x, element)
        if place is not None:
            place.fill_(1.0)
        return torch.relu(x)

    verdict = ask("Functional.relu", F.relu, normal(8, 12), names=MEMORY, calls={"Functional.relu": kernel})
    assert broken(verdict) == {"guard": "error"}
    assert found(verdict)["guard"].reason == words


def test_elements_that_are_not_written_are_shown(ask: Ask) -> None:
    def kernel(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        out = torch.empty_like(x)
        out[:-1] = torch.relu(x[:-1])
        return out

    verdict = ask("Functional.relu", F.relu, normal(8, 12), names=MEMORY, calls={"Functional.relu": kernel})
    written = found(verdict)["all-written"]
    assert broken(verdict) == {"all-written": "error"}
    assert written.reason == "not written: output.0: 12 of 96 elements differ with what memory was full of"
    assert {element.index[0] for element in written.worst} == {7}
    assert (written.metrics["apart"], written.metrics["elements"]) == (12, 96)


@pytest.mark.parametrize("size", [(5, 7), (200, 300), (1500, 1000)])
def test_memory_that_a_library_allocates_is_seen(ask: Ask, size: tuple[int, int]) -> None:
    def kernel(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        made = torch.relu(x)
        # What numbers the memory of `resize_` has nobody knows: torch allocates it inside.
        longer = torch.zeros(0, dtype=x.dtype).resize_(x.shape)
        longer.view(-1)[:-1] = made.view(-1)[:-1]
        return longer

    verdict = ask("Functional.relu", F.relu, normal(*size), names=MEMORY, calls={"Functional.relu": kernel})
    assert broken(verdict) == {"all-written": "error"}
    assert ": 1 of " in found(verdict)["all-written"].reason


def test_a_view_by_strides_may_read_its_memory(ask: Ask) -> None:
    verdict = ask("Torch.as_strided", torch.as_strided, normal(8, 12), (4,), (2,), 1)
    assert "guard" not in found(verdict)
    assert broken(verdict) == {}


def test_chance_is_no_memory(ask: Ask) -> None:
    generator = torch.Generator().manual_seed(0)

    def kernel(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.softmax(x, dim) * (1 + 2.0**-23 * torch.randint(2, x.shape, generator=generator))

    calls = {"Functional.softmax": kernel}
    verdict = ask("Functional.softmax", F.softmax, normal(16, 500), -1, names=(*MEMORY, "again"), calls=calls)
    assert broken(verdict) == {"again": "warning"}
    assert found(verdict)["again"].reason.startswith("10 of 10 further calls differ")


def test_what_shares_memory_has_no_zones(ask: Ask) -> None:
    x = normal(1, 12).expand(8, 12)

    def edit(data: dict[str, dict[str, object]]) -> None:
        data["Functional.relu.0.forward"]["input_args"][0]["stride"] = [0, 1]  # type: ignore[index]

    verdict = ask("Functional.relu", F.relu, x, names=("guard",), edit=edit)
    guard = found(verdict)["guard"]
    assert (guard.verdict, guard.reason) in (
        ("pass", "no zones around input.0, whose elements share memory"),
        ("skip", "no tensor of the call has memory that zones can be laid around"),
    )


def test_a_call_that_raises_the_second_time_breaks_them(ask: Ask) -> None:
    calls: list[int] = []

    def kernel(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("only once")
        return torch.relu(x)

    verdict = ask("Functional.relu", F.relu, normal(8, 12), names=("all-written",), calls={"Functional.relu": kernel})
    assert found(verdict)["all-written"].reason.startswith("the same call raises now: cpu raised")
