"""Do errors come from rounding? Rounding has a signature that a fault has not: it has no direction, and no place.

Errors under test are compared with errors of samples that do round, in the same statistics: no statistic has limits of
its own, and an error that all samples share (from a constant that each of them rounds) is allowed.

16-bit rounding may explain an error on another device only if the error has this signature; its size alone is not
enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.numerics.allowed_scale import root_mean_square
from pytest_probe.numerics.dtypes import AnyArray, BoolArray

# Limit for the RMS, as a multiple of the samples': two more roundings in each element multiply it by sqrt(2).
SIZE_RMS = 2.0
# The RMS limit where nobody named the places of the roundings: healthy kernels give up to 1.46, an accumulator in
# float16 gives 1.94 (tests/evidence/test_borders.py and test_chance.py).
SIZE_RMS_UNNAMED = 1.7
# An element's pool, by the size of the reference: the nearest 32 on either side, and all up to 5 % larger or smaller,
# since the nearest may all be equal numbers of one row, which round alike. A pool counts as 4 samples of the element.
NEIGHBOURS, ALIKE, OF_POOL = 32, 1.05, 4.0
# Elements of a pool that are more than so many times as large count less, by the fourth power of how much larger they
# are: 10,000 is rounded by more than all of 3. What is smaller than the usual error counts as that. Where less than
# FEWEST is left, the mean of all fills it up.
LARGER, FEWEST = 4.0, 8.0
# Sizes beyond that are one size, lest powers of them overflow.
HUGE = 1e60
# The square of one rounding in ulps, as its standard deviation.
ONE_ROUNDING = 1 / 12
# One output of so many may have an element beyond its bound by chance; and the share of the largest errors, which may
# be a fault's and say nothing of how large the others are.
CHANCE, LARGEST_SHARE = 1e6, 1 / 16
# A common factor of one row is uniform: its square is up to 3 times the mean square. Samples show the rest.
GROUP = 2.0
# Limit for a mean: a multiple of the samples' mean, plus standard errors of a mean.
MEAN, SIGMAS = 1.5, 6.0
# The fewest elements with a useful mean, and the fewest groups with a useful scatter.
FEW_ELEMENTS, FEW_GROUPS = 16, 4
# Chunks of the elements in order, and tiles of the last two dimensions on each side.
CHUNKS, TILES = 16, 8


def unlike_rounding(errors: AnyArray, samples: Sequence[AnyArray], values: AnyArray, size_rms: float = SIZE_RMS) -> str:
    """Why errors do not come from rounding; "" where they may.

    errors: in units of the scale of each element, finite, any shape. samples: the same of runs that round as a healthy
    device may, at least one. values: the reference, whose signs distinguish errors that grow from errors that shift.
    size_rms: how many times the samples' RMS the errors' may be: RMS(errors) <= size_rms max RMS(sample).
    """
    size = root_mean_square(np.abs(errors))
    if not size:
        return ""
    usual = max(root_mean_square(np.abs(sample)) for sample in samples)
    if size > size_rms * usual:
        return f"RMS {size:.3g} noise scales, rounding gives {usual:.3g}"
    # One element that is far off is no place.
    farthest = max(float(np.abs(sample).max()) for sample in samples)
    return direction(errors, samples, values) or place_of(np.clip(errors, -farthest, farthest), samples)


def scaled(errors: AnyArray, samples: Sequence[AnyArray], values: AnyArray, unit: AnyArray) -> list[AnyArray]:
    """Errors, and those of each sample, in units of each element's scale: the RMS of the other samples there and in its
    pool, and one rounding at least. errors, samples, values: as of `unlike_rounding`, but not scaled. unit: an ulp of
    each element."""
    sizes = np.abs(values).ravel()
    order = np.argsort(sizes, kind="stable")
    # In one unit for all: where terms cancel, errors are as large as those of their neighbours, and results are not.
    common = float(np.median(unit))
    squares = [np.square(each / common) for each in samples]
    total, count, pool = np.sum(squares, axis=0), len(squares), np.empty(values.size)
    usual = common * size_of_most(np.sqrt(total / count))
    pool[order] = _means_of_alike(total.ravel()[order], sizes[order], usual) / count
    least, pool = ONE_ROUNDING * np.square(unit / common), OF_POOL * pool.reshape(values.shape)

    def divided(found: AnyArray, others: AnyArray, several: int) -> AnyArray:
        return np.asarray(found / common / np.sqrt(np.maximum((others + pool) / (several + OF_POOL), least)))

    theirs = (divided(each, total - own, count - 1) for each, own in zip(samples, squares, strict=True))
    return [divided(errors, total, count), *theirs]


def too_far(errors: AnyArray, samples: Sequence[AnyArray], beyond: BoolArray, room: float) -> str:
    """Why an element is farther off than rounding leads it; "" where none is.

    errors, samples: in units of the scale of each element. beyond: where errors are more than an ulp, as far as a
    rounding to the other side leads. The farthest sample gives the bound: room times what one output of normal errors
    in 10^6 reaches.
    """
    count, size = len(samples), errors.size
    usual, *others = map(size_of_most, (errors, *samples))
    more = max(1.0, usual / max(others)) if max(others) else 1.0
    tail = math.sqrt(math.log(CHANCE * size) / math.log(max(count * size, FEW_ELEMENTS)))
    bound = room * more * tail * max(float(np.abs(each).max()) for each in samples)
    largest = float(np.max(np.abs(errors), initial=0.0, where=beyond))
    if largest <= bound:
        return ""
    return f"an element is off by {largest:.3g} times its scale, rounding gives at most {bound:.3g}"


def size_of_most(errors: AnyArray) -> float:
    """The RMS of all errors but the largest; 0 of a single one."""
    kept = errors.size - math.ceil(LARGEST_SHARE * errors.size)
    return root_mean_square(np.partition(np.abs(errors), max(kept - 1, 0), axis=None)[:kept]) if kept else 0.0


def _means_of_alike(numbers: AnyArray, sizes: AnyArray, least: float) -> AnyArray:
    """The mean of each number and those of its pool; sizes ascend. Sizes below `least` count as that."""
    places = np.arange(numbers.size)
    nearest, farthest = np.maximum(places - NEIGHBOURS, 0), np.minimum(places + NEIGHBOURS + 1, numbers.size)
    first = np.minimum(nearest, np.searchsorted(sizes, sizes / ALIKE, "left"))
    last = np.maximum(farthest, np.searchsorted(sizes, sizes * ALIKE, "right"))
    # Without an error all are of one size.
    units = np.clip(np.nan_to_num(sizes / (least or math.inf), nan=HUGE), 1.0, HUGE)
    middle = np.minimum(last, np.searchsorted(units, LARGER * units, "right"))

    def sums(terms: AnyArray) -> tuple[AnyArray, AnyArray]:
        """With less of the larger ones, and with all of them."""
        before = np.concatenate([[0.0], np.cumsum(terms)])
        # A weight is a quotient of both sizes. From the largest on, terms grow, so that their sums keep all digits.
        behind = np.concatenate([np.cumsum((terms * units**-4.0)[::-1])[::-1], [0.0]])
        less = before[middle] - before[first] + (LARGER * units) ** 4 * (behind[middle] - behind[last])
        return less, before[last] - before[first]

    (found, of_all), (weights, count) = sums(numbers), sums(np.ones(numbers.size))
    missing = np.maximum(FEWEST - weights, 0.0)
    return np.asarray(np.maximum(found + missing * of_all / count, 0.0) / (weights + missing))


def direction(
    errors: AnyArray, samples: Sequence[AnyArray], values: AnyArray, *, unit: str = "scales", mean_of: float = MEAN
) -> str:
    """Why errors have a direction, a mean shift or a mean scale, that rounding has not; "" where they have none.
    Arguments as of `unlike_rounding`; unit says in which the errors are given, mean_of how many times the samples' mean
    theirs may be: |mean(w e)| <= mean_of max |mean(w sample)| + 6 standard errors, with w = 1 and w = sign(values)."""
    if errors.size < FEW_ELEMENTS:
        return ""
    signs = np.sign(values)
    for word, weights in (("shifted", np.ones_like(signs)), ("scaled", signs)):
        mean = float((errors * weights).mean())
        usual = max(abs(float((sample * weights).mean())) for sample in samples)
        if abs(mean) <= mean_of * usual:
            continue
        error = _standard_error([item * weights for item in (errors, *samples)])
        if abs(mean) > mean_of * usual + SIGMAS * error:
            return f"{word} on average by {abs(mean):.3g} {unit}, {abs(mean) / max(error, 1e-300):.3g} standard errors"
    return ""


def _standard_error(several: Sequence[AnyArray]) -> float:
    """The largest standard error of a mean of several arrays of errors, where elements of a group may share a rounding:
    the largest by any grouping. The means of few groups may scatter too little by chance, so few groups count for
    more."""
    found = max(float(errors.std() / errors.size**0.5) for errors in several)
    for _, groups in partitions(several[0].shape):
        counts = np.bincount(groups)
        if counts.size >= FEW_GROUPS:
            more = (1 + FEW_GROUPS / counts.size) / counts.size**0.5
            for errors in several:
                means = np.bincount(groups, weights=errors.ravel()) / np.maximum(counts, 1)
                found = max(found, more * float(means[counts > 0].std(ddof=1)))
    return found


def place_of(errors: AnyArray, samples: Sequence[AnyArray], least: float = 0.0) -> str:
    """A row, a column, a tile, a tail or a parity class that errs more than the others, whose RMS counts as `least` at
    least: its RMS over that of all is more than twice the most that it is in a sample, or than 1."""
    for word, groups in partitions(errors.shape):
        counts = np.bincount(groups)
        if counts.size < 2:
            continue
        shares = [_shares(errors, groups, counts, least), *(_shares(item, groups, counts) for item in samples)]
        most, usual = float(shares[0].max()), max(float(share.max()) for share in shares[1:])
        if most > GROUP * max(usual, 1.0):
            where = f"{word} {int(shares[0].argmax())}"
            return f"{where} is off {most:.3g} times as much as the whole, rounding gives {usual:.3g} times"
    return ""


def _shares(errors: AnyArray, groups: AnyArray, counts: AnyArray, least: float = 0.0) -> AnyArray:
    """RMS of each group over the RMS of all."""
    squares = np.bincount(groups, weights=errors.ravel() ** 2) / np.maximum(counts, 1)
    mean = max(float((errors**2).mean()), least**2)
    return np.sqrt(squares / mean) if mean else np.ones_like(squares)


def partitions(shape: Sequence[int]) -> Iterator[tuple[str, AnyArray]]:
    """Ways to group elements, each by a number for every element in order, of shape (size,): along dimensions, rows of
    all leading ones, chunks, parity and tiles. Groups of fewer than 4 elements say nothing."""
    size = int(np.prod(shape, dtype=np.int64))
    order = np.arange(size)
    index = np.unravel_index(order, shape) if size and shape else ()
    for axis, extent in enumerate(shape):
        if 2 <= extent <= size // 4:
            yield f"dimension {axis}, index", index[axis]
    if len(shape) > 2 and shape[-1] >= 4:
        yield "row", order // shape[-1]
    if size >= 4 * CHUNKS:
        yield f"part of {CHUNKS}:", order * CHUNKS // size
    for axis, extent in list(enumerate(shape))[-2:]:
        if extent >= 4 and size >= 8:
            yield f"parity in dimension {axis}:", index[axis] % 2
    if len(shape) >= 2 and min(shape[-2:]) >= 2 * TILES:
        rows, columns = (index[axis] * TILES // shape[axis] for axis in (-2, -1))
        yield "tile", rows * TILES + columns
