"""What ranks send in a reduction, how a device may add it up, and how a faulty one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to, widen

SIZE = 4096


def normal(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    return [rng.standard_normal(SIZE) for _ in range(ranks)]


def near(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    """Replicas of one gradient, nearly."""
    same = rng.standard_normal(SIZE)
    return [same * (1 + 0.01 * rng.standard_normal(SIZE)) for _ in range(ranks)]


def positive(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    return [rng.gamma(0.5, 1.0, SIZE) for _ in range(ranks)]


def cancelling(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    """Half of the ranks have nearly the opposite of the other half."""
    half = [rng.standard_normal(SIZE) * 100 for _ in range(ranks // 2)]
    rest = [-each + rng.standard_normal(SIZE) for each in half]
    return [*half, *rest, *[rng.standard_normal(SIZE) for _ in range(ranks % 2)]]


def sparse(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    return [rng.standard_normal(SIZE) * (rng.random(SIZE) < 0.05) for _ in range(ranks)]


def tiny(rng: np.random.Generator, ranks: int) -> list[AnyArray]:
    """Gradients among float16's subnormal numbers."""
    return [rng.standard_normal(SIZE) * 1e-6 for _ in range(ranks)]


DATA = (normal, near, positive, cancelling, sparse, tiny)


def added(terms: Sequence[AnyArray], order: Sequence[int], dtype: np.dtype) -> AnyArray:
    total = widen(terms[order[0]])
    for place in order[1:]:
        total = widen(round_to(total + widen(terms[place]), dtype))
    return total


def ring(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """Each part of the tensor begins at another rank."""
    ranks, parts = len(terms), np.array_split(np.arange(SIZE), len(terms))
    return np.concatenate(
        [
            added([each[part] for each in terms], [(at + k) % ranks for k in range(ranks)], dtype)
            for at, part in enumerate(parts)
        ]
    )


def tree(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    left = [widen(each) for each in terms]
    while len(left) > 1:
        left = [
            widen(round_to(left[at] + left[at + 1], dtype)) if at + 1 < len(left) else left[at]
            for at in range(0, len(left), 2)
        ]
    return left[0]


def by_chance(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    return added(terms, list(np.random.default_rng(len(terms)).permutation(len(terms))), dtype)


def wide(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """float32 inside."""
    return added(terms, range(len(terms)), np.dtype(np.float32))


def by_hosts(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """Within hosts of four first, then between them."""
    hosts = [added(terms[at : at + 4], range(len(terms[at : at + 4])), dtype) for at in range(0, len(terms), 4)]
    return added(hosts, range(len(hosts)), dtype)


HEALTHY: tuple[Callable[[Sequence[AnyArray], np.dtype], AnyArray], ...] = (ring, tree, by_chance, wide, by_hosts)


def missing(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    return ring(terms, dtype) - widen(terms[-1])


def twice(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    return ring(terms, dtype) + widen(terms[0])


def divided(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    return ring(terms, dtype) / (len(terms) + 1) * len(terms)


def own(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    return widen(terms[0])


def narrow(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """One step narrower inside than was asked for."""
    return ring([round_to(widen(each), numpy_dtype("bfloat16")) for each in terms], numpy_dtype("bfloat16"))


def part_missing(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """One chunk of the ring has not all ranks."""
    found = ring(terms, dtype)
    found[-SIZE // 8 :] -= widen(terms[1])[-SIZE // 8 :]
    return found


def flipped(terms: Sequence[AnyArray], dtype: np.dtype) -> AnyArray:
    """One element has another exponent."""
    found = ring(terms, dtype)
    found[np.argmax(np.abs(found))] *= 2
    return found


FAULTS: tuple[Callable[[Sequence[AnyArray], np.dtype], AnyArray], ...] = (
    missing,
    twice,
    divided,
    own,
    narrow,
    part_missing,
    flipped,
)


@dataclass(frozen=True)
class Case:
    name: str
    terms: list[AnyArray]
    actual: AnyArray
    faulty: bool


def shows(actual: AnyArray, terms: Sequence[AnyArray], dtype: np.dtype) -> bool:
    """Is the fault larger than what the order of roundings changes? Eight times in an element, or twice in the whole:
    where a sum cancels in 16 bit it may be lost."""
    right = [widen(round_to(each(terms, dtype), dtype)) for each in HEALTHY]
    spread = np.max(right, axis=0) - np.min(right, axis=0)
    apart = np.abs(widen(actual) - right[0])
    return bool((apart > 8 * spread).any()) or np.linalg.norm(apart) > 2 * np.linalg.norm(spread)


def cases() -> Iterator[Case]:
    number = 0
    for dtype in map(numpy_dtype, ("float32", "bfloat16", "float16")):
        for ranks in (2, 3, 4, 8, 32):
            for data in DATA:
                for make in (*HEALTHY, *FAULTS):
                    number += 1
                    if make is narrow and dtype.itemsize == 2:
                        continue
                    rng = np.random.default_rng(number)
                    terms = [round_to(each, dtype) for each in data(rng, ranks)]
                    actual = round_to(make(terms, dtype), dtype)
                    if make in FAULTS and not shows(actual, terms, dtype):
                        continue
                    yield Case(f"{dtype.name}-{ranks}-{data.__name__}-{make.__name__}", terms, actual, make in FAULTS)
