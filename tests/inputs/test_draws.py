"""Large tensors are drawn block by block: the same numbers as all at once, in any order, on any number of threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_probe.inputs import curves, draws, generated, recorded_statistics
from pytest_probe.inputs.draws import Draw, Uniforms, round_to_dtype, whole
from pytest_probe.inputs.generated import draw, generate, generate_in
from pytest_probe.inputs.planted import plant, supposed, values_like
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import numpy_dtype

# No multiple of a block, nor of the width of a row.
SHAPE = (233, 101)
SIZE = math.prod(SHAPE)
NORMAL: dict[str, Any] = {"max": 4.0, "min": -4.5, "mean": 0.1, "norm": math.sqrt(SIZE)}
FLOATS: dict[str, dict[str, Any]] = {
    "normal": NORMAL,
    "relu": {"max": 5.0, "min": 0.0, "mean": 0.4, "norm": math.sqrt(SIZE / 2)},
    "softmax": {"max": 0.4, "min": 1e-6, "mean": 0.01, "norm": math.sqrt(SIZE * 1.6e-4)},
    "heavy tails": {"max": 900.0, "min": -400.0, "mean": 0.1, "norm": math.sqrt(SIZE * 50)},
    "a range": {"max": 4.0, "min": -4.5},
    "a constant": {"max": 2.0, "min": 2.0},
    "two values": {"max": 1.0, "min": 0.0, "mean": 0.3, "norm": math.sqrt(SIZE * 0.3)},
    "no norm": {"max": 4.0, "min": -4.5, "mean": 0.1},
    "some zeros": {**NORMAL, "zeros": 0.3},
    "two masses": {**NORMAL, "zeros": 0.2, "mode": (1.5, 0.3)},
    "rows of zeros": {**NORMAL, "zeros": 0.3, "constant_rows": (0.25, 0.0)},
    "nearly all zeros": {**NORMAL, "mean": 0.0, "norm": math.sqrt(SIZE * 0.03), "zeros": 0.97},
    "few rows left": {**NORMAL, "mean": 0.0, "norm": math.sqrt(SIZE * 0.03), "constant_rows": (0.97, 0.0)},
    "rows of their own": {**NORMAL, "constant_rows": (0.25, None)},
    "all rows": {**NORMAL, "constant_rows": (1.0, None)},
}
EXACT: dict[str, TensorSpec] = {
    "nothing": TensorSpec("float32", SHAPE),
    "powers of two": TensorSpec("float8_e8m0fnu", SHAPE),
    "mask": TensorSpec("float32", SHAPE, 0.0, -math.inf),
    "counted mask": TensorSpec("float32", SHAPE, 0.0, -math.inf, inf=5000, nan=0, constant_rows=(0.1, -math.inf)),
    "rows of a mask": TensorSpec("float32", SHAPE, 0.0, -math.inf, constant_rows=(0.1, -2.0)),
    "mask of the lowest": TensorSpec("float32", SHAPE, 0.0, -3.4e38, -1e38, 1e39),
    "scores": TensorSpec("float32", SHAPE, 5.0, -math.inf),
    "int64": TensorSpec("int64", SHAPE, 1000, -3),
    "int32": TensorSpec("int32", SHAPE, 100_000, 0),
    "uint8": TensorSpec("uint8", SHAPE, 255, 0),
    "bool": TensorSpec("bool", SHAPE, True, False),
    "counted": TensorSpec("bool", SHAPE, True, False, true=777),
}


def stream(seed: int = 0, before: int = 0) -> np.random.Generator:
    rng = np.random.Generator(np.random.Philox(key=seed))
    rng.random(before)
    return rng


def cut(monkeypatch: pytest.MonkeyPatch, large: int, cores: int = 1) -> None:
    """Numbers from so many on are drawn block by block, on so many cores."""
    for module in (draws, generated, recorded_statistics):
        monkeypatch.setattr(module, "LARGE", large)
    monkeypatch.setattr(draws, "usable_cores", lambda: cores)
    monkeypatch.setattr(draws, "_TURN", 1)


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 1000])
def test_any_uniform_numbers_without_those_before_them(before: int, size: int) -> None:
    plain, rng = stream(before=before), stream(before=before)
    wanted, found = plain.random(size), Uniforms(rng, size)
    for start in {0, 1, 2, size // 2, size - 1} & set(range(size)):
        out = np.empty(size - start)
        found.fill(start, out)
        assert out.tobytes() == wanted[start:].tobytes()
    assert rng.integers(1 << 40, size=9).tolist() == plain.integers(1 << 40, size=9).tolist()


def test_the_count_of_a_generator_may_overflow_its_words() -> None:
    rng, plain = stream(), stream()
    for each in (rng, plain):
        state: Any = each.bit_generator.state
        state["state"]["counter"][:] = (1 << 64) - 1
        each.bit_generator.state = state
    out = np.empty(5)
    Uniforms(rng, 12).fill(7, out)
    assert out.tobytes() == plain.random(12)[7:].tobytes()


@pytest.mark.parametrize("law", FLOATS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_blocks_are_parts_of_the_whole(monkeypatch: pytest.MonkeyPatch, law: str, dtype: str) -> None:
    spec = TensorSpec("float32", SHAPE, **FLOATS[law])
    cut(monkeypatch, 1000)
    numbers = plant(draw(supposed(spec), stream()), spec, stream(1))
    made = numbers.part(0, SIZE) if isinstance(numbers, Draw) else numbers
    assert isinstance(numbers, Draw) or law == "all rows"
    found = round_to_dtype(numbers, dtype)
    assert found.tobytes() == made.astype(numpy_dtype(dtype)).tobytes()
    for start, stop in ((0, 1), (1, 9), (77, BLOCK + 78), (SIZE - 3, SIZE)):
        if isinstance(numbers, Draw):
            assert numbers.part(start, stop).tobytes() == made[start:stop].tobytes()


@pytest.mark.parametrize("law", FLOATS)
def test_blocks_give_what_is_drawn_all_at_once(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    """But for the last bits, which hang on the order of the sums that bring mean and norm."""
    spec = TensorSpec("float32", SHAPE, **FLOATS[law])
    rng = stream(before=1)
    wanted, after = values_like(spec, rng), rng.random()
    cut(monkeypatch, 1000)
    rng = stream(before=1)
    found = values_like(spec, rng)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11 * np.abs(wanted).max())
    assert rng.random() == after
    assert (found == 0).tolist() == (wanted == 0).tolist()


@pytest.mark.parametrize("law", [*FLOATS, *EXACT])
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    spec = EXACT[law] if law in EXACT else TensorSpec("float32", SHAPE, **FLOATS[law])
    cut(monkeypatch, 1000)
    alone = generate_in(spec, stream(), spec.dtype)
    cut(monkeypatch, 1000, cores=4)
    assert generate_in(spec, stream(), spec.dtype).tobytes() == alone.tobytes()


@pytest.mark.parametrize("law", EXACT)
def test_laws_without_sums_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    spec = EXACT[law]
    for module in (draws, recorded_statistics):
        monkeypatch.setattr(module, "BLOCK", 10 * SIZE)
    rng = stream()
    wanted, after = round_to_dtype(generate(spec, rng), spec.dtype), rng.random()
    monkeypatch.undo()
    cut(monkeypatch, 1000)
    rng = stream()
    assert generate_in(spec, rng, spec.dtype).tobytes() == wanted.tobytes()
    assert rng.random() == after


def test_a_generator_that_does_not_count_draws_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, 1000)
    wanted = recorded_statistics.Statistics(-4.5, 4.0, 0.1, math.sqrt(SIZE))
    assert not isinstance(recorded_statistics.drawn(np.random.default_rng(0), SIZE, wanted), Draw)
    assert isinstance(recorded_statistics.drawn(stream(), SIZE, wanted), Draw)


def test_a_large_sample_has_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where maps do not bring the moments, shifts do."""
    cut(monkeypatch, 1000)
    for told in FLOATS.values():
        if "norm" in told:
            values = whole(generated.draw(TensorSpec("float32", SHAPE, **told), stream()))
            assert (values.min(), values.max()) == (told["min"], told["max"])
            assert float(np.mean(values)) == pytest.approx(told["mean"], rel=0.01, abs=1e-4 * told["max"])
            assert float(np.linalg.norm(values)) == pytest.approx(told["norm"], rel=0.01)


@pytest.mark.parametrize(("low", "mean", "rms"), [(0.0, 8.3e-7, 3e-6), (-5.7, 0.0, 1.0), (0.0, 1e-4, 1e-3)])
def test_moments_of_many_numbers_take_one_pass(
    monkeypatch: pytest.MonkeyPatch, low: float, mean: float, rms: float
) -> None:
    """The first of them show what is to be bent; heavy tails took five passes."""
    count = 8 << 20
    passed: list[int] = []

    def noted(size: int, work: Any) -> Any:
        passed.append(size)
        return draws.by_turns(size, work)

    monkeypatch.setattr(curves, "by_turns", noted)
    wanted = recorded_statistics.Statistics(low, max(3.2e-4, 1000 * mean, 5.7 * rms), mean, rms * math.sqrt(count))
    values = whole(recorded_statistics.drawn(stream(), count, wanted))
    assert passed.count(count - 2) == 1
    assert float(values.mean()) == pytest.approx(mean, rel=3e-3, abs=2e-3 * rms)
    assert math.sqrt(float(np.mean(values**2))) == pytest.approx(rms, rel=3e-3)
