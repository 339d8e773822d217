from __future__ import annotations

import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import UNSET, json
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from pytest_probe import capture
from pytest_probe.capture.config import read_config
from pytest_probe.capture.statistics import MAX_KEPT_INTEGERS
from pytest_probe.capture.torch.statistics import faster_alone
from pytest_probe.capture.torch.values import Values
from tests.capture.kits import pytorch
from tests.capture.test_values import SIZES
from tests.capture.test_values import shown as shown_by

pytestmark = pytest.mark.usefixtures("counting")


def values(**options: Any) -> Values:
    return Values(read_config(None, dump_path="d", **options))


shown = partial(shown_by, pytorch)
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def test_a_mean_of_what_cancels_is_exact() -> None:
    tensor = torch.tensor([1e8, 1.0, -1e8] * 10_000)
    assert math.isclose(shown(tensor)["Mean"], 1 / 3, rel_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_mean_of_one_sign_has_seven_digits(sign: int, dtype: torch.dtype) -> None:
    tensor = sign * torch.rand(300_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert math.isclose(shown(tensor)["Mean"], tensor.double().mean().item(), rel_tol=1e-7)


@pytest.mark.parametrize("shape", [(), (3,), (50_000,)])
def test_both_signs_of_an_imaginary_part(shape: tuple[int, ...]) -> None:
    taking, numbers = values(), torch.full(shape, 3 + 4j)
    for _ in range(2):
        plain, negative = taking.take(numbers.imag), taking.take(numbers.conj().imag)
        taking.settle()
        assert (plain.max, negative.max) == (4.0, -4.0)


@pytest.mark.parametrize("size", [3, 50_000])
def test_memory_that_holds_other_numbers_than_its_tensor(size: int) -> None:
    """A conjugate, and its imaginary part, are views of the same bytes."""
    conjugate = torch.full((size,), 3 + 4j).conj()
    plain = torch.full((size,), 3 - 4j)
    assert shown(conjugate, summary_mode="md5")["md5"] == shown(plain, summary_mode="md5")["md5"]
    assert shown(conjugate)["Max"] == 5.0


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e200])
@pytest.mark.parametrize("size", SIZES)
def test_a_norm_whose_squares_no_float_holds(size: int, scale: float) -> None:
    tensor = torch.full((size,), scale, dtype=torch.float64 if scale > 1e38 else torch.float32)
    assert math.isclose(shown(tensor)["Norm"], float(tensor[0]) * math.sqrt(size), rel_tol=1e-6)


def normal(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, 256, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("rows", [15, 500, 2000])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn])
def test_zeros_and_constant_rows_of_any_size(rows: int, dtype: torch.dtype) -> None:
    """Exact where a tensor is small, from a sample where it is large."""
    half = normal(rows, dtype)
    half[rows // 2 :] = 0
    seen = shown(half.float().relu().to(dtype))
    assert seen["zeros"] == pytest.approx(0.75, abs=0.06)
    assert seen["constant_rows"] == [pytest.approx(0.5, abs=0.06), 0.0]
    assert "mode" not in seen


@pytest.mark.parametrize("rows", [15, 500])
def test_a_most_frequent_value(rows: int) -> None:
    value, share = shown(normal(rows).clamp(-1, 0.5))["mode"]
    assert (value, share) == (0.5, pytest.approx(0.31, abs=0.08))


@pytest.mark.parametrize("rows", [15, 500])
@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_have_no_masses(rows: int, dtype: torch.dtype) -> None:
    seen = shown(normal(rows, dtype))
    assert seen["zeros"] < 0.02
    assert not {"mode", "constant_rows"} & set(seen)


@pytest.mark.parametrize("rows", [15, 500])
def test_views_tell_zeros_but_no_rows(rows: int) -> None:
    padded = normal(rows)
    padded[: rows // 2] = 0
    for view in (padded.T, padded[:, :128], padded[:, ::2], padded.expand(2, rows, 256)):
        seen = shown(view)
        assert seen["zeros"] == pytest.approx(0.5, abs=0.1)
        assert "constant_rows" not in seen
    assert shown(-padded)["zeros"] == pytest.approx(0.5, abs=0.1)


def test_a_view_in_order_has_the_rows_of_its_memory() -> None:
    taking, padded = values(), normal(500)
    padded[250:] = 0
    seen = [taking.take(one) for one in (padded, padded.view(50, 10, 256), padded.view(-1, 128), padded.T)]
    taking.settle()
    assert seen[1].constant_rows == seen[0].constant_rows != UNSET
    assert [one.constant_rows for one in seen[2:]] == [UNSET, UNSET]
    assert {one.zeros for one in seen} == {seen[0].zeros}


@pytest.mark.parametrize("size", SIZES)
def test_integers_are_exact(size: int) -> None:
    large = torch.full((size,), 2**60)
    large[0] = 2**60 + 1
    seen = shown(large)
    assert (seen["Max"], seen["Min"]) == (2**60 + 1, 2**60)


def test_few_integers_stand_as_they_are() -> None:
    numbers = torch.tensor([[3, -1, 2**60], [0, 5, 7]])
    assert shown(numbers)["values"] == [3, -1, 2**60, 0, 5, 7]
    assert shown(np.array([3, 250], np.uint8))["values"] == [3, 250]
    assert len(shown(torch.arange(MAX_KEPT_INTEGERS))["values"]) == MAX_KEPT_INTEGERS
    others = (torch.arange(MAX_KEPT_INTEGERS + 1), torch.tensor(3), numbers.T, numbers > 0, numbers.float())
    assert not any("values" in shown(tensor) for tensor in others)


@pytest.mark.parametrize("turned", [False, True])
def test_integers_of_views_stand_in_their_own_order(turned: bool) -> None:
    taking, numbers = values(), torch.tensor([[1, 2], [3, 4]])
    views = {0: numbers, 1: numbers.T, 2: numbers.view(-1)}
    found = {place: taking.take(views[place]) for place in sorted(views, reverse=turned)}
    taking.settle()
    assert found[1].values is UNSET
    assert [found[place].values for place in (0, 2)] in ([[1, 2, 3, 4]] * 2, [UNSET, [1, 2, 3, 4]])


def test_odd_tensors() -> None:
    assert shown(torch.ones(4).to(torch.float8_e4m3fn))["Max"] == 1.0
    assert shown(torch.ones(2, device="meta"))["Max"] is None
    sparse = shown(torch.eye(3).to_sparse())
    assert (sparse["type"], sparse["shape"]) == ("torch.sparse_coo", [3, 3])


@pytest.mark.parametrize("size", [(4, 6), (300, 400)])
def test_a_tensor_is_looked_at_again_when_it_was_written_to(size: tuple[int, int]) -> None:
    taking = values()
    tensor = torch.zeros(size)
    first = taking.take(tensor)
    assert taking.take(tensor) is first
    tensor.add_(1)
    second = taking.take(tensor)
    tensor.view(-1)[3] = 9
    third = taking.take(tensor)
    taking.settle()
    assert [seen.max for seen in (first, second, third)] == [0.0, 1.0, 9.0]


@pytest.mark.parametrize("size", [(4, 6), (300, 400)])
def test_no_view_is_taken_for_another(size: tuple[int, int]) -> None:
    taking = values()
    tensor = torch.arange(float(size[0] * size[1])).view(size)
    views = [tensor, tensor.T, tensor.reshape(-1), tensor[:2], tensor[0], tensor[:2, ::2], tensor.int().float()]
    views += [tensor.detach().requires_grad_(), tensor.view(torch.int32), tensor[:, :3], tensor[:1].expand(5, size[1])]
    for _ in range(2):
        for view in views:
            seen = taking.take(view)
            taking.settle()
            assert (seen.max, seen.min) == (view.max(), view.min())
            assert seen.norm == pytest.approx(view.detach().double().norm().item(), rel=1e-6)
            assert (tuple(seen.shape), seen.requires_grad, seen.dtype) == (
                view.shape,
                view.requires_grad,
                str(view.dtype),
            )
            assert (view.stride() if not view.is_contiguous() else UNSET) == seen.stride


@pytest.mark.parametrize("task", ["statistics", "tensor", "overflow_check"])
@pytest.mark.parametrize("size", [10, 100_000])
def test_memory_that_was_freed_is_not_read(size: int, task: str) -> None:
    """Reading it would end the process."""
    whole = torch.zeros(size)
    freed = [whole, whole[2:], whole[2:].view(2, -1).T, whole[::2]]
    whole.untyped_storage().resize_(0)
    short = torch.zeros(size)
    short.untyped_storage().resize_(4 * size - 4)
    for tensor in (*freed, short, torch._efficientzerotensor((size,))):
        assert shown(tensor, task=task)["Max"] is None
    assert shown(short[:-1], task="statistics")["shape"] == [size - 1]


@pytest.mark.parametrize("size", [(4, 6), (300, 400)])
def test_memory_of_others_is_looked_at_again(size: tuple[int, int]) -> None:
    taking = values()
    array, other = np.zeros(size, np.float32), np.zeros(size, np.float32)
    shared, exported = torch.zeros(size).share_memory_(), torch.zeros(size)
    tensors = [torch.from_numpy(array), torch.from_dlpack(other), shared, exported]  # type: ignore[attr-defined]
    twin = torch.from_dlpack(exported)  # type: ignore[attr-defined]
    before = [taking.take(tensor) for tensor in (*tensors, twin)]
    array[1], other[1] = 1.0, 1.0
    shared.numpy()[1] = 1.0
    twin[1] = 1.0
    taking.take(twin)
    after = [taking.take(tensor) for tensor in tensors]
    taking.settle()
    assert [seen.max for seen in before] == [0.0] * 5
    assert [seen.max for seen in after] == [1.0] * 4


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("size", [8, 40_000])
def test_tensors_that_share_memory_and_no_version(size: int, start: int) -> None:
    """As `.data` gives, and parameters that lie in one buffer."""
    taking = values()
    whole = torch.zeros(size)
    mine = whole.data
    for _ in range(start):
        mine.add_(0)
    for number in range(5):
        seen = taking.take(mine)
        for other in (whole, whole[2:]):
            taking.take(other)
        taking.settle()
        assert seen.max == number
        whole.add_(1)
        taking.take(whole)


def test_what_was_written_while_nothing_was_seen() -> None:
    taking = values()
    tensor = torch.zeros(3)
    taking.take(tensor)
    tensor.data.fill_(1)
    taking.forget()
    seen = taking.take(tensor)
    alias = tensor.numpy()
    taking.distrust([tensor])
    taking.forget()
    alias[0] = 2
    again = taking.take(tensor)
    alias[0] = 3
    last = taking.take(tensor)
    taking.settle()
    assert [one.max for one in (seen, again, last)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_large_tensors_that_torch_has_no_sums_for(dtype: torch.dtype) -> None:
    seen = shown(torch.arange(40_000).to(dtype))
    assert (seen["Max"], seen["Min"], seen["Mean"]) == (39_999, 0, 19_999.5)


def test_a_thread_with_a_device_of_its_own() -> None:
    found: list[Any] = []

    def program() -> None:
        with torch.device("meta"):
            found.append(shown(torch.ones(40_000, dtype=torch.float64, device="cpu")))

    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    assert found[0]["Mean"] == 1.0


@pytest.mark.parametrize("size", [(4, 6), (300, 400)])
def test_views_share_statistics_whenever_they_are_filled_in(size: tuple[int, int]) -> None:
    taking = values()
    tensor = torch.full(size, math.nan)
    first, before = taking.take(tensor), taking.take(tensor.T)
    taking.settle()
    after = taking.take(tensor.reshape(-1))
    taking.settle()
    assert len({id(first), id(before), id(after)}) == 3
    assert first.nan == before.nan == after.nan == tensor.numel()
    assert first.norm == before.norm == after.norm


def test_tensors_of_a_class_that_computes_as_they_do() -> None:
    class Mine(torch.nn.Parameter):
        pass

    class Plain(torch.Tensor):
        pass

    class Other(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__torch_function__(*args, **kwargs)

    for wanting in (Mine(torch.ones(3)), torch.ones(3).as_subclass(Plain).requires_grad_()):
        seen = shown(wanting)
        assert (seen["type"], seen["Max"], seen["requires_grad"]) == ("torch.Tensor", 1.0, True)
    assert shown(torch.ones(3).as_subclass(Other))["type"].endswith("Other")


def test_other_arguments() -> None:
    taking = values()
    given: tuple[Any, ...] = (slice(1, torch.tensor(4), None), ...)
    given = (*given, torch.Size([2, 3]), torch.float16, float, range(1, 7, 2), torch.strided)
    assert json.decode(json.encode(taking.take(given))) == [
        {"type": "slice", "value": [1, 4, None]},
        {"type": "ellipsis", "value": "..."},
        {"type": "torch.Size", "value": [2, 3]},
        {"type": "torch.dtype", "value": "torch.float16"},
        {"type": "torch.dtype", "value": "torch.float64"},
        {"type": "range", "value": [1, 7, 2]},
        {"type": "torch.layout", "layout": "torch.strided"},
    ]
    others = {"d": torch.device("cpu"), "f": torch.channels_last, "g": torch.Generator(), "l": [(1,)]}
    assert json.decode(json.encode(taking.take(others))) == {
        "d": {"type": "torch.device", "value": "cpu:None"},
        "f": {"type": "torch.memory_format", "format": "channels_last"},
        "g": {"type": "torch._C.Generator"},
        "l": [[{"type": "int", "value": 1}]],
    }
    assert json.encode(taking.take([math.nan, -math.inf])).count(b"NaN") == 1


ARRAY = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def _locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        ARRAY,
        ARRAY.T,
        ARRAY[::-1],
        ARRAY[:1][::-1],
        ARRAY[:, ::2],
        _locked(ARRAY.copy()),
        np.broadcast_to(ARRAY[0], (4, 3)),
        np.rec.array(ARRAY),
        np.ma.masked_array(ARRAY, ARRAY > 2),
        np.zeros(2, [("a", "i1"), ("b", "f4")])["b"],
        np.array(2.5),
        np.ones((300, 400), np.float16).T,
    ],
)
@pytest.mark.filterwarnings("error")
def test_arrays(array: np.ndarray) -> None:
    wide = np.asarray(array, np.float64)
    seen = shown(array)
    assert (seen.pop("zeros", 0), seen.pop("mode", None)) == (
        float((wide == 0).mean()) if array.dtype.kind == "f" else 0,
        None,
    )
    assert seen == {
        **{"type": "numpy.ndarray", "dtype": str(array.dtype), "shape": list(array.shape), "requires_grad": False},
        **{"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": pytest.approx(np.sqrt((wide**2).sum()))},
    }


def test_arrays_of_other_kinds() -> None:
    assert shown(np.array([True, False, True]))["True"] == 2
    assert shown(np.array([-3, 2**62]))["Max"] == 2**62
    assert shown(np.array([3 + 4j]))["Norm"] == 5.0
    assert shown(np.array([1.0, math.nan]))["NaN"] == 1
    assert shown(np.zeros((0, 3)))["Max"] is None


def test_an_array_is_looked_at_again() -> None:
    taking, array = values(), np.zeros(3)
    tensor = torch.from_numpy(array)
    first, before = taking.take(array), taking.take(tensor)
    array[0] = 1
    again, after = taking.take(array), taking.take(tensor)
    taking.settle()
    assert [seen.max for seen in (first, before, again, after)] == [0.0, 0.0, 1.0, 1.0]


def test_a_huge_array_is_not_read() -> None:
    seen = shown(np.broadcast_to(np.float32(1), (2**19, 2**19)))
    assert (seen["shape"], seen["Max"]) == ([2**19, 2**19], None)


def test_an_arrays_data_are_kept() -> None:
    array = np.arange(6).reshape(2, 3).T
    kept = values(task="tensor").take(array).data
    assert np.array_equal(kept.numpy(), array)


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array(["a"]), "<U1"),
        (np.array([None]), "object"),
        (np.zeros(1, ">f4"), ">f4"),
        (np.zeros(1, "M8[D]"), "datetime64[D]"),
    ],
)
def test_arrays_that_no_tensor_is_made_of(array: np.ndarray, dtype: str) -> None:
    assert values().take(array) == {"type": f"numpy.ndarray of {dtype}"}


def test_numbers_of_classes_of_their_own() -> None:
    class Count(int):
        pass

    class Share(float):
        pass

    class Index:
        def __index__(self) -> int:
            return 7

    taking = values()
    assert json.encode(taking.take([Count(4), Share(0.5), Index()])) == json.encode(taking.take([4, 0.5, 7]))


def test_kinds_that_are_not_asked_for_have_no_values() -> None:
    assert shown(torch.ones(3), kinds=["int"])["Max"] is None
    assert shown(torch.ones(3, dtype=torch.int32), kinds=["int"])["Max"] == 1
    assert values(kinds=["float"]).take(3) == {}
    assert shown(torch.ones(3), task="structure")["Max"] is None


def test_many_threads_count_large_tensors_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert faster_alone(1 << 30)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 9)
    assert [faster_alone(count) for count in ((1 << 22) - 1, 1 << 22)] == [True, False]


def test_what_a_graph_writes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's version counters do not tell of it."""
    x = torch.ones(3)

    def replay(graph: object) -> None:
        with _unsafe_preserve_version_counter(x):
            x.fill_(5.0)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay)
    with capture(tmp_path):
        x.sin()
        torch.cuda.CUDAGraph.replay(None)  # type: ignore[arg-type]
        x.sin()
    assert torch.cuda.CUDAGraph.replay is replay
    (path,) = tmp_path.glob("step0/*/dump.json")
    entries = json.decode(path.read_bytes())["data"]
    given = [entries[f"Tensor.sin.{number}.forward"]["input_args"][0]["Max"] for number in (0, 1)]
    assert given == [1.0, 5.0]
