"""Values drawn from a distribution: are they possible, and distributed as the call says?

Of n values x with the law F, all elements of the output in any shape:

- range: each x lies between the ends of F, and both ends are met unless chance leaves them out
- Kolmogorov and Smirnov: sup |F_n(x) - F(x)| is at most sqrt(log(2 / p) / (2 n)), with p = 10^-9
- moments: the mean of the k-th Hermite polynomial of z (normal laws), or Legendre polynomial of F(x) (others), for k
  from 1 to 4, in standard errors 1 / sqrt(n): at most 5.3. They show a shift, a width, skewness and tails
- repetition: equal rows, equal blocks, and the autocorrelation of the sequence

The polynomials are those of smooth tests of goodness of fit (Neyman, 1937).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics.dtypes import AnyArray, is_floating, ulp, widen
from pytest_probe.standards.tables import details

# Chances below this are no chance: one false alarm in 10^9 outputs.
UNLIKELY = 1e-9
# Values that the tests of a distribution look at: enough for a distance of 1.3 % to be seen. erf is called for each.
_COMPARED = 1 << 16
# Values that are searched for repetition. It bounds the memory of the transform, tens of MB; a longer period is not
# found.
_LONGEST = 1 << 20
# Values from which on a part is drawn, the values of that part, and of a block that may come again.
_LARGE, _DRAWN, _BLOCK = 1 << 21, 1 << 18, 1 << 12
# Of a Poisson distribution: beyond, e^-rate may underflow, and there is a pass over all draws for each number.
_MOST_COUNTED = 500
# Values. More of them are in order by chance less often than once in 10^9: 13! is 6.2 x 10^9.
_FEW_DRAWS = 12
# Parts of an output that are summed apart. A tail of a 16th that was not written is wrong in a part of its own.
_PARTS = 16
# Standard deviations. Four means are asked for each output: one is beyond 5.3 by chance once in 2 million outputs. The
# sum of 12 uniform numbers, which is nearest to normal of what is drawn in its place, is 6.5 off in 100,000 draws.
_SIGMAS = 5.3
# Draws from which on each mean is as good as normal. A normal number beyond 7 comes in a million draws once in 10^6
# outputs, and moves a mean of fourth powers of 20,000 draws by 3 of its standard deviations.
_MANY_NORMAL, _MANY_EVEN = (1, 1_000, 4_000, 20_000), (100, 100, 100, 100)
# Draws. Fewer leave room for what is a few per cent off, and the verdict says so.
ENOUGH = 100_000

# A healthy generator may draw on a grid that is coarser than the dtype; 4 times is what leaves torch's own alone, and
# fewer distinct values than 3 of 4 expected are no chance from 32 on.
_COARSE, _DISTINCT, _FEW_VALUES = 4.0, 0.75, 32

_Distribution: TypeAlias = Callable[[AnyArray], AnyArray]


class _Law(Struct, frozen=True):
    """A cumulative distribution of values between low and high. A value x counts as (x - shift) / scale, element by
    element where those are arrays. whole: of whole numbers. normal: what makes them standard normal, where there is
    such a function."""

    upto: _Distribution
    low: float = -math.inf
    high: float = math.inf
    shift: Any = 0.0
    scale: Any = 1.0
    whole: bool = False
    normal: _Distribution | None = None


def _ramp(values: AnyArray) -> AnyArray:
    return np.clip(values, 0.0, 1.0)


# Of probabilities.
_EVEN = _Law(_ramp, 0.0, 1.0)


def known(comparison: Comparison) -> bool:
    """Is there a law for what was drawn?"""
    return bool(_distribution(comparison)) and comparison.actual.dtype.kind != "c"


def _distribution(comparison: Comparison) -> str:
    return next(iter(details(comparison.classes, "distribution")), "")


def failure_reason(comparison: Comparison) -> str | None:
    """What is wrong with the values of a random API that is `known`; None where nothing is."""
    name = _distribution(comparison)
    if name in _PATTERNS:
        return _PATTERNS[name](comparison, widen(comparison.actual))
    law = _LAWS[name](comparison)
    if comparison.actual.size >= _LARGE and not np.ndim(law.shift) and not np.ndim(law.scale):
        return _of_large(comparison.actual, law)
    return _of_all(comparison.actual, law)


def _of_all(actual: AnyArray, law: _Law) -> str | None:
    """What is wrong with values, each of which is looked at."""
    values, dtype = widen(actual), actual.dtype
    scale = np.broadcast_to(law.scale, values.shape)
    if not values.size or not scale.all():
        return None  # no distribution, but the mean itself
    # Within what a value may have been rounded, or cut, to the output's dtype.
    rounding = np.nan_to_num(ulp(values, dtype)) if is_floating(dtype) else np.zeros(values.shape)
    standard, step = (values - law.shift) / scale, rounding / scale
    impossible = ~((standard >= law.low - step) & (standard <= law.high + step))
    if law.whole:
        impossible |= values != np.floor(values)
    if impossible.any():
        place = tuple(int(index) for index in np.argwhere(impossible)[0])
        return f"{int(impossible.sum()):,} values are impossible, for example {values[place]:g} at {list(place)}"
    chances = law.upto(standard)
    repeated = _repeated(actual, law, standard, step)
    found = _whole_off(law.upto(standard - 1.0), chances) if law.whole else _off(law, standard, step)
    found = found or repeated or repetition(chances - chances.mean(), float(chances.var()))
    if found or law.whole:
        return found
    return _cut_off(law, standard, step) or _too_few_values(law, standard, step)


def _of_large(actual: AnyArray, law: _Law) -> str | None:
    """The same of very many values: the distribution of drawn ones, and of all what a pass tells: the least and the
    largest, how many are below the middle in each part, blocks that come again, and rows."""
    flat = np.ascontiguousarray(actual).reshape(-1)
    with np.errstate(invalid="ignore"):  # NaN
        ends = np.array([flat.min(), flat.max()])
    fractions = law.whole and actual.dtype.kind not in "iub" and bool((flat != np.floor(flat)).any())
    values, step = _standard(ends, law)
    possible = (values >= law.low - step) & (values <= law.high + step)
    if fractions or not possible.all():
        return _of_all(actual, law)
    # The first blocks, which show a short period, and as many others: the same each time, since a verdict repeats.
    blocks = flat[: flat.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    half = _DRAWN // _BLOCK // 2
    others = np.random.Generator(np.random.Philox(key=flat.size)).choice(len(blocks), half, replace=False)
    drawn = blocks[np.union1d(np.arange(half), others)].reshape(-1)
    found = _of_all(drawn, law) or _parts_off(flat, law, np.sort(drawn)[drawn.size // 2 :][:1])
    # A whole number counts up to itself, and from the one before it.
    above, below = 1 - law.upto(values[1:] + step[1:]), law.upto(values[:1] - (1.0 if law.whole else step[:1]))
    for word, beyond, end in (("above", above[0], ends[1]), ("below", below[0], ends[0])):
        found = found or _beyond_end(word, float(beyond), float(end), flat.size)
    first = _standard(flat[:_BLOCK], law)
    if _BLOCK * _likeliest(law, *first) <= math.log(UNLIKELY / len(blocks) ** 2):
        found = found or _block_again(blocks)
    return found or _repeated(actual, law, *first)


def _standard(values: AnyArray, law: _Law) -> tuple[AnyArray, AnyArray]:
    """Values as the law counts them, and what each may have been rounded by."""
    wide, floating = widen(values), is_floating(values.dtype)
    rounding = np.nan_to_num(ulp(wide, values.dtype)) if floating else np.zeros(wide.shape)
    return (wide - law.shift) / law.scale, rounding / law.scale


def _parts_off(flat: AnyArray, law: _Law, middle: AnyArray) -> str | None:
    """Are as many values up to a middle one as the law says, in each of 16 parts?"""
    value, step = _standard(middle, law)
    low, high = (float(law.upto(value + side * _COARSE * step)[0]) for side in (-1, 1))
    for number, part in enumerate(np.array_split(flat, _PARTS)):
        found = int(np.count_nonzero(part <= middle[0]))
        chance = min(max(found / part.size, low), high)
        if _beyond_chance(found, part.size * chance, part.size * chance * (1 - chance)):
            wanted = f"{part.size * chance:,.0f} are expected"
            return f"{found:,} of {part.size:,} values in part {number + 1} of {_PARTS} are small, where {wanted}"
    return None


def _block_again(blocks: AnyArray) -> str | None:
    """Does a block of values come again, bit for bit?"""
    bits = blocks.view(f"u{blocks.itemsize}")
    _, first, times = np.unique(bits.sum(axis=1, dtype=np.uint64), return_index=True, return_counts=True)
    for place in first[times > 1]:
        same = np.flatnonzero((bits == bits[place]).all(axis=1))
        if same.size > 1:
            return f"the {_BLOCK:,} values from {place * _BLOCK:,} on come again from {same[1] * _BLOCK:,} on"
    return None


def _off(law: _Law, values: AnyArray, step: AnyArray) -> str | None:
    """How the values are distributed; each may be anywhere within its step."""
    stride = max(1, values.size // _COMPARED)
    flat, steps = values.ravel()[::stride], step.ravel()[::stride]
    low, high = np.sort(law.upto(flat - steps)), np.sort(law.upto(flat + steps))
    return _kolmogorov(low, high) or _moments(law, values, step)


def _kolmogorov(low: AnyArray, high: AnyArray) -> str | None:
    """The test of Kolmogorov and Smirnov, its limit by Dvoretzky, Kiefer, Wolfowitz and Massart. Sorted."""
    count = len(low)
    ranks = np.arange(count + 1) / count
    distance = float(max((ranks[1:] - high).max(), (low - ranks[:-1]).max()))
    limit = math.sqrt(math.log(2 / UNLIKELY) / (2 * count))
    if distance <= limit:
        return None
    return f"wrong distribution: Kolmogorov-Smirnov distance {distance:.3g} (limit {limit:.3g})"


def _moments(law: _Law, values: AnyArray, step: AnyArray) -> str | None:
    """The means of polynomials that have mean 0 and variance 1 under the law, and do not correlate."""
    flat, steps = values.ravel()[:_LONGEST], step.ravel()[:_LONGEST]
    places = (flat - steps, flat, flat + steps)
    found = map(_hermite, map(law.normal, places)) if law.normal else map(_legendre, map(law.upto, places))
    least = _MANY_NORMAL if law.normal else _MANY_EVEN
    for word, count, low, middle, high in zip(("mean", "width", "skewness", "tails"), least, *found, strict=True):
        if flat.size < count:
            continue
        unsure = np.maximum(np.abs(low - middle), np.abs(high - middle))
        sigmas = max(0.0, abs(float(np.mean(middle))) - float(np.mean(unsure))) * math.sqrt(flat.size)
        if sigmas > _SIGMAS:
            return f"wrong distribution: {word} off by {sigmas:.3g} sigma (limit {_SIGMAS:g})"
    return None


def _hermite(z: AnyArray) -> tuple[AnyArray, ...]:
    """Of standard normal values: https://dlmf.nist.gov/18.3, He_1 to He_4 over the root of their variance k!."""
    square = z * z
    return z, (square - 1) / 2**0.5, z * (square - 3) / 6**0.5, ((square - 6) * square + 3) / 24**0.5


def _legendre(u: AnyArray) -> tuple[AnyArray, ...]:
    """Of values that are uniform between 0 and 1: https://dlmf.nist.gov/18.3, P_1 to P_4 times the root of 2k + 1."""
    t = 2 * u - 1
    square = t * t
    first, second = 3**0.5 * t, 5**0.5 * (3 * square - 1) / 2
    return first, second, 7**0.5 * t * (5 * square - 3) / 2, 3 * ((35 * square - 30) * square + 3) / 8


def _whole_off(below: AnyArray, upto: AnyArray) -> str | None:
    """What is wrong with whole numbers, given the chances of a smaller one and of one up to it. A number drawn evenly
    between both is uniform (Smith, 1985: the randomised probability integral transform)."""
    # The same numbers each time, whatever the device drew: a verdict repeats.
    between = np.random.Generator(np.random.Philox(key=upto.size)).random(upto.shape)
    chances, none = below + between * (upto - below), np.zeros(upto.shape)
    return _off(_EVEN, chances, none) or _cut_off(_EVEN, chances, none)


def _cut_off(law: _Law, values: AnyArray, step: AnyArray) -> str | None:
    """Are there no values near an end, where as many draws should have some?"""
    flat, steps = values.ravel(), step.ravel()
    highest, lowest = int(flat.argmax()), int(flat.argmin())
    above = law.upto(flat[highest : highest + 1] + steps[highest])[0]
    below = 1 - law.upto(flat[lowest : lowest + 1] - steps[lowest])[0]
    for inside, word, place in ((above, "above", highest), (below, "below", lowest)):
        found = _beyond_end(word, 1 - inside, float(flat[place]), flat.size)
        if found:
            return found
    return None


def _beyond_end(word: str, beyond: float, end: float, count: int) -> str | None:
    """Is it no chance that none of so many values is beyond an end, where each has some chance to be there?"""
    if not 0 < beyond < 1 or count * math.log1p(-beyond) >= math.log(UNLIKELY):
        return None
    return f"cut off: no value {word} {end:.4g}, where {count * beyond:,.0f} of {count:,} are expected"


def _too_few_values(law: _Law, values: AnyArray, step: AnyArray) -> str | None:
    """Are there fewer distinct values than a grid that is 4 times as coarse as the dtype would leave, or is one value
    there more often than by chance?"""
    if np.ndim(law.shift) or np.ndim(law.scale):
        return None  # one value is another probability in each element
    flat, steps = values.ravel()[:_COMPARED], _COARSE * step.ravel()[:_COMPARED]
    shares = law.upto(flat + steps / 2) - law.upto(flat - steps / 2)
    expected = float(np.sum(1 / (1 + (flat.size - 1) * shares)))
    found, places, counts = np.unique(flat, return_index=True, return_counts=True)
    most, distinct = int(counts.argmax()), found.size
    likely = flat.size * float(shares[places[most]])
    if counts[most] > likely and _beyond_chance(float(counts[most]), likely, likely):
        return f"{counts[most]:,} of {flat.size:,} values are {found[most]:.4g}"
    if expected < _FEW_VALUES or distinct >= _DISTINCT * expected:
        return None
    return f"{distinct:,} distinct values among {flat.size:,}, where {expected:,.0f} are expected at least"


def _repeated(actual: AnyArray, law: _Law, values: AnyArray, step: AnyArray) -> str | None:
    """Rows that are the same as the row before, where that is no chance: stale memory, a generator that stood still."""
    if actual.ndim < 2 or len(actual) < 2:
        return None
    rows = actual.reshape(len(actual), -1)
    if rows.shape[1] * _likeliest(law, values, step) > math.log(UNLIKELY / len(rows)):
        return None
    same = (rows[1:] == rows[:-1]).all(axis=1)
    return f"row {int(np.argmax(same)) + 1:,} repeats the row before it" if same.any() else None


def _likeliest(law: _Law, values: AnyArray, step: AnyArray) -> float:
    """The logarithm of the chance of the likeliest of 4,096 values: it bounds how often blocks are alike by chance."""
    sample, width = values.ravel()[:_BLOCK], 1.0 if law.whole else step.ravel()[:_BLOCK]
    likely = float(np.max(law.upto(sample) - law.upto(sample - width)))
    return math.log(min(max(likely, 1e-300), 1.0))


def repetition(values: AnyArray, variance: float) -> str | None:
    """Do values between -1 and 1, of mean 0, come again so many elements later, as where blocks of a kernel draw the
    same numbers? By Bernstein's inequality for their products, every second of which is drawn for itself."""
    values = values.ravel()[:_LONGEST]
    if values.size < _FEW_DRAWS or not variance:
        return None
    spectrum = np.fft.rfft(values, 2 * values.size)
    products = np.fft.irfft(np.abs(spectrum) ** 2)[1 : values.size]
    # Only every second product is drawn for itself, hence the 4 in place of 2 in the limit below.
    spread = np.arange(values.size - 1, 0, -1) * variance**2 + np.abs(products) / 3
    unlikely = products**2 / spread
    lag = int(unlikely.argmax())
    if unlikely[lag] <= 4 * math.log(2 * values.size / UNLIKELY):
        return None
    alike = products[lag] / np.dot(values, values)
    return f"the values repeat {lag + 1:,} elements later: correlation {alike:.2g}"


def _beyond_chance(found: float, wanted: float, variance: float) -> bool:
    """Is a sum too far from its mean, by Bernstein's inequality for terms of at most 1?"""
    off = abs(found - wanted)
    return off * off > 2 * math.log(2 / UNLIKELY) * (variance + off / 3)


def _uniform(comparison: Comparison) -> _Law:
    low, high = float(comparison.call.argument("from")), float(comparison.call.argument("to"))
    return _Law(_ramp, 0.0, 1.0, low, high - low)


_erf = np.vectorize(math.erf, otypes=[float])


def _bell(values: AnyArray) -> AnyArray:
    return np.asarray((1 + _erf(values / math.sqrt(2))) / 2)


def _normal(comparison: Comparison) -> _Law:
    mean, std = comparison.call.argument("mean"), comparison.call.argument("std")
    return _Law(_bell, shift=_wide(mean), scale=_wide(std), normal=_itself)


def _itself(values: AnyArray) -> AnyArray:
    return values


def _wide(value: Any) -> Any:
    return widen(value) if isinstance(value, np.ndarray) else float(value)


def _log_normal(comparison: Comparison) -> _Law:
    mean, std = float(comparison.call.argument("mean")), float(comparison.call.argument("std"))

    def upto(values: AnyArray) -> AnyArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, _bell((np.log(np.maximum(values, 1e-300)) - mean) / std), 0.0)

    return _Law(upto, low=0.0)


def _exponential(comparison: Comparison) -> _Law:
    rate = float(comparison.call.argument("lambd"))
    return _Law(lambda values: -np.expm1(-np.maximum(values, 0.0)), low=0.0, scale=1 / rate)


def _cauchy(comparison: Comparison) -> _Law:
    median, sigma = float(comparison.call.argument("median")), float(comparison.call.argument("sigma"))
    return _Law(lambda values: np.arctan(values) / np.pi + 0.5, shift=median, scale=sigma)


def _geometric(comparison: Comparison) -> _Law:
    rate = math.log1p(-float(comparison.call.argument("p")))
    return _Law(lambda values: -np.expm1(np.maximum(values, 0.0) * rate), low=1.0, whole=True)


def _integers(comparison: Comparison) -> _Law:
    low, high = int(comparison.call.argument("low") or 0), int(comparison.call.argument("high") or 0)
    count = high - low
    return _Law(lambda values: np.clip((values + 1) / count, 0.0, 1.0), 0.0, count - 1.0, low, whole=True)


def _bernoulli(comparison: Comparison, values: AnyArray) -> str | None:
    given = comparison.call.argument("p")
    chance = comparison.call.argument("input") if given is None else given
    chances = np.broadcast_to(_wide(chance), values.shape)
    impossible = ((values != 0) & (values != 1)) | (values > np.ceil(chances)) | (values < np.floor(chances))
    if impossible.any():
        return f"{int(impossible.sum()):,} values are impossible"
    variances = chances * (1 - chances)
    off = _sum_off(values, chances, variances, "ones") or _unlike_chances(values, chances, variances)
    return off or repetition(values - chances, float(np.max(variances, initial=0.0)))


def _unlike_chances(values: AnyArray, chances: AnyArray, variances: AnyArray) -> str | None:
    """Do the values follow each element's own chance? One chance for all leaves the sum as it is, as rounding may."""
    weights = chances - chances.mean()
    largest = float(np.abs(weights).max(initial=0.0))
    if not largest:
        return None
    weights = weights / largest
    found, wanted = float(np.sum(values * weights)), float(np.sum(chances * weights))
    if not _beyond_chance(found, wanted, float(np.sum(variances * weights**2))):
        return None
    return "the ones do not follow each element's own probability"


def _poisson(comparison: Comparison, values: AnyArray) -> str | None:
    rates = widen(comparison.call.argument("input"))
    impossible = (values < 0) | (values != np.floor(values)) | ((rates == 0) & (values != 0))
    if impossible.any():
        return f"{int(impossible.sum()):,} values are impossible"
    # Bernstein's inequality wants terms of at most 1: ten times the largest rate is seldom drawn.
    scale = max(1.0, float(np.max(rates, initial=0.0)) * 10)
    found = _sum_off(values / scale, rates / scale, rates / scale**2, f"times {scale:g}")
    if found or not values.size or values.max() > _MOST_COUNTED:
        return found
    stride = max(1, values.size // _COMPARED)
    values, rates = values.ravel()[::stride], np.broadcast_to(rates, values.shape).ravel()[::stride]
    # The chances of a smaller number, and of one up to each value.
    term, below, upto = np.exp(-rates), np.zeros(rates.shape), np.zeros(rates.shape)
    for number in range(int(values.max()) + 1):
        below += np.where(number < values, term, 0.0)
        upto += np.where(number <= values, term, 0.0)
        term = term * rates / (number + 1)
    return _whole_off(below, upto)


def _sum_off(values: AnyArray, means: AnyArray, variances: AnyArray, what: str) -> str | None:
    """The sum of all, and of each of 16 parts, lest an unwritten tail drown in the whole."""
    split = zip(*(np.array_split(array.ravel(), _PARTS) for array in (values, means, variances)), strict=True)
    for part in ((values, means, variances), *split):
        found, wanted, variance = (float(np.sum(array)) for array in part)
        if _beyond_chance(found, wanted, variance):
            return f"{found:,.4g} {what} of {part[0].size:,} where {wanted:,.4g} are expected"
    return None


def _permutation(comparison: Comparison, values: AnyArray) -> str | None:
    if not np.array_equal(np.sort(values), np.arange(values.size)):
        return f"no permutation of 0 to {values.size - 1:,}"
    return "in order" if values.size > _FEW_DRAWS and np.array_equal(values, np.arange(values.size)) else None


def _multinomial(comparison: Comparison, values: AnyArray) -> str | None:
    weights = np.atleast_2d(widen(comparison.call.argument("input")))
    drawn = np.atleast_2d(comparison.actual).astype(np.int64)
    if drawn.size and (drawn.min() < 0 or drawn.max() >= weights.shape[1]):
        return f"an index beyond the {weights.shape[1]:,} categories"
    if (np.take_along_axis(weights, drawn, axis=1) == 0).any():
        return "a category of weight 0 was drawn"
    if not comparison.call.argument("replacement"):
        return "a category was drawn twice" if (np.diff(np.sort(drawn, axis=1)) == 0).any() else None
    shares = weights / weights.sum(axis=1, keepdims=True)
    # The first 64 categories: each takes a pass over all draws, and a wrong law shows in some of them.
    for category in range(min(weights.shape[1], 64)):
        chances = np.repeat(shares[:, category], drawn.shape[1])
        found = _sum_off((drawn == category).astype(float).ravel(), chances, chances * (1 - chances), "draws")
        if found is not None:
            return f"category {category}: {found}"
    return None


# By the names that classes.yaml gives to distributions.
_LAWS: Mapping[str, Callable[[Comparison], _Law]] = {
    "unit": lambda comparison: _EVEN,
    "uniform": _uniform,
    "standard_normal": lambda comparison: _Law(_bell, normal=_itself),
    "normal": _normal,
    "log_normal": _log_normal,
    "exponential": _exponential,
    "cauchy": _cauchy,
    "geometric": _geometric,
    "integers": _integers,
}
_PATTERNS: Mapping[str, Callable[[Comparison, AnyArray], str | None]] = {
    "bernoulli": _bernoulli,
    "poisson": _poisson,
    "permutation": _permutation,
    "multinomial": _multinomial,
}
