"""What our own capture tells beside msprobe's is used by the replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pytest_probe import capture
from pytest_probe.model.verdict import Verdict
from tests.support.checking import verdicts


def captured(folder: Path, program: Callable[[], object], **options: Any) -> Path:
    """The dump of a program."""
    with capture(folder, **options):
        program()
    (path,) = folder.glob("step0/*/dump.json")
    return path


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def outcomes(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.verdict for name, verdict in found.items()}


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


# Tuples and layouts


def test_a_tuple_of_indices_is_no_list(tmp_path: Path) -> None:
    x = normal(3, 4)
    rows, columns = torch.tensor([0, 2]), torch.tensor([1, 3])

    def program() -> None:
        x[(rows, columns)]
        x[[0, 2]]
        x[(0, 2)]

    found = verdicts(captured(tmp_path, program))
    assert list(outcomes(found).values()) == ["pass"] * 3
    assert [len(verdict.outputs[0].shape) for verdict in found.values()] == [1, 2, 0]


def test_strides_are_seen_on_both_sides(tmp_path: Path) -> None:
    """What depends on the layout is the same call again."""
    x = normal(4, 6)

    def program() -> None:
        x.t().is_contiguous()
        x.t().stride()
        x.t().as_strided((2, 2), (1, 1))
        x[:1].expand(4, 6).add(1)

    found = verdicts(captured(tmp_path, program))
    assert set(outcomes(found).values()) == {"pass"}


def test_a_tensor_twice_is_the_same_twice(tmp_path: Path) -> None:
    x = normal(64)

    def program() -> None:
        torch.sub(x, x)
        torch.eq(x, x)

    found = verdicts(captured(tmp_path, program))
    assert set(outcomes(found).values()) == {"pass"}
    assert found["Torch.sub.0.forward"].outputs[0].metrics["noise_ratio"] == 0.0


def test_a_scalar_that_was_not_kept_is_no_dtype(tmp_path: Path) -> None:
    x = normal(3)
    found = verdicts(captured(tmp_path, lambda: torch.add(x, 2), kinds=["float"]))
    [verdict] = found.values()
    assert (verdict.verdict, verdict.kind) == ("skip", "lost argument")
    assert "input.1 was not recorded" in verdict.reason


# NumPy's arrays

ROWS, MASK = np.array([2, 0, -1]), np.array([True, False, True, True])
TABLE = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


def on_arrays() -> None:
    x = normal(4, 5)
    for make in (torch.as_tensor, torch.tensor, torch.asarray):
        for array in (TABLE, TABLE.T, TABLE.astype(np.float64), ROWS, MASK, np.array(2.5), TABLE * 1j):
            make(array)
    torch.tensor(TABLE, dtype=torch.bfloat16)
    x.new_tensor(ROWS)
    for index in (
        ROWS,
        MASK,
        (slice(None), ROWS),
        (ROWS, ROWS),
        (None, MASK),
        (MASK, slice(1, 3)),
        np.array(2),
    ):
        x[index]
        x[index] = 1.5
    x[MASK, 1] += 1
    normal(4, 5).requires_grad_()[ROWS].sum().backward()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_arrays_are_replayed(tmp_path: Path, task: str, dtype: str | None) -> None:
    found = verdicts(captured(tmp_path, on_arrays, task=task), dtype=dtype)
    assert set(outcomes(found).values()) == {"pass"}
    assert len(found) > 40


def test_a_wrong_tensor_of_an_array_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = captured(tmp_path, on_arrays)
    right = torch.as_tensor

    def wrong(array: Any) -> torch.Tensor:
        assert type(array) is np.ndarray
        made = right(array).clone()
        return made.fill_(0) if made.dtype is torch.float32 else made

    monkeypatch.setattr(torch, "as_tensor", wrong)
    found = outcomes(verdicts(path))
    assert [name for name, verdict in found.items() if verdict != "pass"] == [
        f"Torch.as_tensor.{number}.forward" for number in (0, 1)
    ]


def test_what_was_recorded_of_an_array(tmp_path: Path) -> None:
    found = outcomes(verdicts(captured(tmp_path, on_arrays, task="tensor"), device="recorded"))
    kinds = {verdict for name, verdict in found.items() if name.startswith("Torch.") or "__getitem__" in name}
    assert kinds == {"pass"}


# Other kinds of arguments


class Own(torch.Tensor):
    pass


class Place:
    def __index__(self) -> int:
        return 2


def odd_arguments() -> None:
    x = normal(3, 4)
    torch.zeros(2, 3, dtype=x.dtype, layout=x.layout, device=x.device)
    torch.empty_like(x, layout=torch.strided)
    x[range(2)], x[:, range(3, -1, -2)], torch.tensor(range(4)), x.sum(tuple(range(2)))
    two: Any = Place()
    x[two], x.view(two, 6), x[:two]
    own = x.as_subclass(Own).requires_grad_()
    (own * 2 + x).sum().backward()
    torch.tensor((np.int32(1), 2)), torch.tensor([np.float32(1), 2]), torch.tensor([np.int8(1), True])
    torch.cat(torch.linalg.qr(x), 1), torch.stack(torch.aminmax(x)), torch.stack(torch.max(x, 0)[:1])


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_odd_arguments_are_replayed(tmp_path: Path, task: str) -> None:
    found = verdicts(captured(tmp_path, odd_arguments, task=task))
    assert set(outcomes(found).values()) == {"pass"}


def test_results_that_grow_are_no_fault(tmp_path: Path) -> None:
    x = normal(3, 4)

    def program() -> None:
        torch.mean(x, 0, out=torch.empty(0))
        torch.sort(x, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))
        torch.zeros(2).resize_(5)

    assert set(outcomes(verdicts(captured(tmp_path, program))).values()) == {"pass"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_no_dump_holds_is_a_skip_that_says_so(tmp_path: Path) -> None:
    x = normal(2, 2)

    def program() -> None:
        x.clone().apply_(lambda value: value + 1)
        x.to_sparse()
        torch.zeros(2, layout=torch.sparse_coo)
        torch.zeros(2, dtype=torch.complex32)
        ragged.sin()
        torch.tensor(bytearray(b"ab"))

    ragged = torch.nested.nested_tensor([normal(2), normal(3)])
    found = verdicts(captured(tmp_path, program))
    skips = [verdict for verdict in found.values() if verdict.verdict != "pass"]
    assert {(verdict.verdict, verdict.kind) for verdict in skips} == {("skip", "value that no dump holds")}
    assert [verdict.reason.split(": ", 2)[2].split(", expected")[0] for verdict in skips] == [
        'input_args.1.type: found "builtins.function"',
        'output.0.type: found "torch.sparse_coo"',
        "input_kwargs.layout.layout: found the layout torch.sparse_coo",
        "input_kwargs.dtype.value: found the dtype complex32, which NumPy does not have",
        'input_args.0.type: found "torch.nested"',
        'input_args.0.type: found "builtins.bytearray"',
    ]


def test_a_sparse_gradient_is_judged_though_no_dump_holds_it(tmp_path: Path) -> None:
    """A replay makes its own."""
    weight, index = normal(9, 4).requires_grad_(), torch.tensor([[1, 2, 1], [0, 8, 8]])

    def program() -> None:
        F.embedding(index, weight, sparse=True).sum().backward()
        F.embedding_bag(index, weight, mode="sum", sparse=True).sum().backward()

    found = verdicts(captured(tmp_path, program))
    judged = [
        f"Functional.{name}.0.{way}" for name in ("embedding", "embedding_bag") for way in ("forward", "backward")
    ]
    assert {name: found[name].verdict for name in judged} == dict.fromkeys(judged, "pass")


# What decides the shapes


def by_sizes() -> None:
    x, repeats = normal(3, 4), torch.tensor([3, 0, 1])
    three: Any = torch.tensor(3)  # where torch says that it wants a number
    large: Any = torch.tensor(9)
    half: Any = torch.tensor(2.5)
    torch.zeros(three, 2)
    torch.full((three,), half)
    torch.arange(three)
    x.view(three, -1)
    x[: three - 1]
    x.repeat(three, 1)
    torch.repeat_interleave(repeats)
    torch.repeat_interleave(x, repeats, dim=0)
    torch.tensor_split(x, torch.tensor([1, 3]), dim=1)
    x.split([torch.tensor(1), torch.tensor(2)])
    torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
    torch.randint(0, large, (3,))
    lengths = torch.nn.utils.rnn.pack_padded_sequence(normal(5, 3, 4), torch.tensor([5, 2, 1]))
    torch.nn.utils.rnn.pad_packed_sequence(torch.nn.LSTM(4, 2)(lengths)[0])
    many = torch.nn.utils.rnn.pack_padded_sequence(normal(90, 3, 4), torch.tensor([90, 40, 7]))
    torch.nn.GRU(4, 2)(many)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_tensors_that_decide_shapes_are_as_they_were(tmp_path: Path, task: str) -> None:
    found = verdicts(captured(tmp_path, by_sizes, task=task))
    assert set(outcomes(found).values()) == {"pass"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_stands_for_inf_is_the_largest_number(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)

    def program() -> None:
        x.nan_to_num()
        torch.nan_to_num(x, posinf=3.0)
        x.clone().nan_to_num_()

    assert set(outcomes(verdicts(captured(tmp_path, program, task="tensor"))).values()) == {"pass"}


# Autocast and the default dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_recorded_default_dtype_counts(tmp_path: Path, dtype: torch.dtype) -> None:
    def program() -> None:
        torch.set_default_dtype(dtype)
        torch.ones(2)
        torch.arange(3) / 3
        torch.tensor([1.0, 2.0]).exp()
        torch.set_default_dtype(torch.float32)
        torch.ones(2)

    found = verdicts(captured(tmp_path, program))
    assert set(outcomes(found).values()) == {"pass"}
    last = str(torch.float32).removeprefix("torch.")
    assert [verdict.outputs[0].dtype for verdict in found.values()][-2:] == [str(dtype).removeprefix("torch."), last]
    assert torch.get_default_dtype() is torch.float32


def test_the_recorded_autocast_counts(tmp_path: Path) -> None:
    x, weight = normal(8, 16), normal(4, 16, seed=1)

    def program() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            F.linear(x, weight)
            torch.exp(x)

    found = verdicts(captured(tmp_path, program))
    assert set(outcomes(found).values()) == {"pass"}
    assert found["Functional.linear.0.forward"].notes == ("under autocast to bfloat16",)
    assert found["Torch.exp.0.forward"].notes == ()


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.02, "error")])
def test_autocast_inside_a_call_that_gives_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, verdict: str
) -> None:
    """The dtypes of such a call tell nothing. Off by 2 % it is wrong under autocast as well."""

    def inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        wrong = factor if x.dtype is torch.float32 else 1.0
        return torch.matmul(x, y * wrong).to(x.dtype)

    monkeypatch.setattr(torch, "mm", inside)
    row = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [16, 16], "Max": 3.0, "Min": -3.0, "Mean": 0.0}
    entry = {"input_args": [row | {"Norm": 16.0}] * 2, "input_kwargs": {}, "output": [row]}
    found = {}
    for name, probe in (("under", {"autocast": {"cpu": "bfloat16"}}), ("off", {})):
        path = tmp_path / f"{name}.json"
        data = {"Torch.mm.0.forward": {**entry, "probe": probe}}
        path.write_text(json.dumps({"task": "statistics", "level": "L1", "probe": {}, "data": data}))
        [found[name]] = verdicts(path).values()
    assert [each.verdict for each in found.values()] == [verdict, verdict]
    assert [each.notes for each in found.values()] == [("under autocast to bfloat16",), ()]


def test_without_autocast_other_dtypes_are_wrong(tmp_path: Path) -> None:
    """Where others' dumps leave autocast open, ours say that there was none."""

    x, weight = normal(8, 16), normal(4, 16, seed=1)

    def program() -> None:
        F.linear(x, weight)

    def change(content: dict[str, Any]) -> None:
        content["data"]["Functional.linear.0.forward"]["output"][0]["dtype"] = "torch.bfloat16"

    path = edited(captured(tmp_path, program), change)
    [verdict] = verdicts(path).values()
    assert (verdict.verdict, verdict.reason) == ("error", "the device gave float32[8, 4], recorded: bfloat16[8, 4]")


# Gradients


X, WEIGHT = normal(8, 16).requires_grad_(), normal(4, 16, seed=1).requires_grad_()


def training() -> None:
    F.linear(X, WEIGHT, bias=None).sigmoid().sum().backward()


def test_stored_gradients_are_judged(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, training, task="tensor"), device="recorded")
    assert set(outcomes(found).values()) == {"pass"}
    backward = found["Functional.linear.0.backward"]
    assert [output.name for output in backward.outputs] == ["grad.input.0", "grad.input.1"]


@pytest.mark.parametrize(("place", "names"), [(0, ["grad.input.0"]), (1, ["grad.input.1"])])
def test_a_wrong_stored_gradient_is_an_error(tmp_path: Path, place: int, names: list[str]) -> None:
    path = captured(tmp_path, training, task="tensor")
    file = path.parent / "dump_tensor_data" / f"Functional.linear.0.backward.output.{place}.pt"
    torch.save(torch.load(file) * 1.001, file)
    found = verdicts(path, device="recorded")
    assert [name for name, verdict in found.items() if verdict.verdict != "pass"] == ["Functional.linear.0.backward"]
    backward = found["Functional.linear.0.backward"]
    assert [output.name for output in backward.outputs if output.verdict == "error"] == names


def test_a_wrong_incoming_gradient_is_an_error(tmp_path: Path) -> None:
    path = captured(tmp_path, training, task="tensor")
    file = path.parent / "dump_tensor_data" / "Functional.linear.0.backward.input.0.pt"
    torch.save(torch.load(file) * 1.001, file)
    found = verdicts(path, device="recorded")
    assert found["Functional.linear.0.backward"].verdict == "error"


def test_outputs_without_a_gradient_are_no_fault(tmp_path: Path) -> None:
    x = normal(6, 4).requires_grad_()

    def program() -> None:
        _, values, _ = torch.linalg.svd(x)
        values.sum().backward()

    found = verdicts(captured(tmp_path, program, task="tensor"), device="recorded")
    assert found["Torch.linalg.svd.0.backward"].verdict == "pass"


def test_gradients_of_a_tensor_at_several_places_are_left_out(tmp_path: Path) -> None:
    x, weight = normal(8, 16).requires_grad_(), normal(1, 16, 16).requires_grad_()

    def program() -> None:
        F.bilinear(x, x, weight).sum().backward()

    found = verdicts(captured(tmp_path, program, task="tensor"), device="recorded")
    backward = found["Functional.bilinear.0.backward"]
    assert backward.verdict == "pass"
    assert [output.name for output in backward.outputs] == ["grad.input.2"]
    words = "not judged, because the dump does not have their own gradient: input.0, input.1"
    assert words in backward.notes


def on_one_cast() -> None:
    x, y, weight = normal(8, 16), normal(8, 16, seed=1).requires_grad_(), normal(4, 16, seed=2).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = F.linear(x, weight).sum() + F.linear(y.bfloat16(), weight).sum()
    total.backward()


def test_gradients_that_several_calls_gave_to_one_cast_are_judged(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, on_one_cast, task="tensor"), device="recorded")
    assert set(outcomes(found).values()) == {"pass"}
    judged = [[output.name for output in found[f"Functional.linear.{call}.backward"].outputs] for call in (0, 1)]
    assert judged == [["grad.input.1"], ["grad.input.0", "grad.input.1"]]


@pytest.mark.parametrize("call", [0, 1])
def test_a_wrong_gradient_of_a_cast_is_an_error(tmp_path: Path, call: int) -> None:
    """As the sum of both calls' is."""
    path = captured(tmp_path, on_one_cast, task="tensor")
    places = json.loads(path.read_text())["data"][f"Functional.linear.{call}.backward"]["probe"]["inputs"]
    file = path.parent / "dump_tensor_data" / f"Functional.linear.{call}.backward.output.{places.index('input.1')}.pt"
    torch.save(torch.load(file) * 1.02, file)
    found = outcomes(verdicts(path, device="recorded"))
    assert [name for name, verdict in found.items() if verdict == "error"] == [f"Functional.linear.{call}.backward"]


def test_programs_go_backward_outside_of_autocast(tmp_path: Path) -> None:
    """Under it the products in svd's gradient would be 16-bit ones."""
    x = normal(6, 4).requires_grad_()

    def program() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            left, values, _ = torch.linalg.svd(x, full_matrices=False)
        (values.sum() + left.abs().sum()).backward()

    found = verdicts(captured(tmp_path, program))
    assert found["Torch.linalg.svd.0.backward"].verdict == "pass"


def test_an_input_that_an_in_place_call_leaves_as_it_was(tmp_path: Path) -> None:
    """Our dumps hold arguments as they were before the call."""
    found = verdicts(captured(tmp_path, lambda: torch.zeros(4).mul_(0.9), task="tensor"), device="recorded")
    assert found["Tensor.mul_.0.forward"].verdict == "pass"


def test_statistics_hold_no_gradients_to_judge(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, training), device="recorded")
    assert {(verdict.verdict, verdict.kind) for verdict in found.values()} == {("skip", "no stored tensors")}


def test_a_backward_that_was_not_recorded_is_a_skip(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["data"]["Functional.linear.0.backward"] = {"probe": {"failed": "ValueError: too odd"}}

    found = verdicts(edited(captured(tmp_path, training), change))
    skips = {name: (verdict.kind, verdict.reason) for name, verdict in found.items() if verdict.verdict == "skip"}
    [(name, (kind, reason))] = skips.items()
    assert (name, kind) == ("Functional.linear.0.backward", "not recorded")
    assert "the capture could not record it (ValueError: too odd)" in reason


def test_a_forward_that_was_not_recorded_is_a_skip(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["data"]["Tensor.sum.0.forward"] = {"probe": {"failed": "ValueError: too odd"}}

    found = verdicts(edited(captured(tmp_path, training), change))
    kinds = {name: verdict.kind for name, verdict in found.items() if verdict.verdict != "pass"}
    assert kinds == {"Tensor.sum.0.forward": "not recorded", "Tensor.sum.0.backward": "not recorded"}
