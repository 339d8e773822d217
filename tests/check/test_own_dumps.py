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
from tests.check.conftest import normal
from tests.support.checking import verdicts


def captured(folder: Path, program: Callable[[], object], **options: Any) -> Path:
    """The dump of a program."""
    with capture(folder, **options):
        program()
    (path,) = folder.glob("step0/*/dump.json")
    return path


def outcomes(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.verdict for name, verdict in found.items()}


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_a_scalar_that_was_not_kept_is_no_dtype(tmp_path: Path) -> None:
    x = normal(3)
    found = verdicts(captured(tmp_path, lambda: torch.add(x, 2), kinds=["float"]))
    [verdict] = found.values()
    assert (verdict.verdict, verdict.kind) == ("skip", "lost argument")
    assert "input.1 was not recorded" in verdict.reason


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


def indices() -> None:
    """A tuple of them is no list."""
    x, rows, columns = normal(3, 4), torch.tensor([0, 2]), torch.tensor([1, 3])
    x[(rows, columns)], x[[0, 2]], x[(0, 2)]


def layouts() -> None:
    """What depends on the layout is the same call again, and so is a tensor that was passed twice."""
    x = normal(4, 6)
    x.t().is_contiguous()
    x.t().stride()
    x.t().as_strided((2, 2), (1, 1))
    x[:1].expand(4, 6).add(1)
    torch.sub(x, x)
    torch.eq(x, x)
    torch.zeros(4).mul_(0.9)


def growing() -> None:
    x = normal(3, 4)
    torch.mean(x, 0, out=torch.empty(0))
    torch.sort(x, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))
    torch.zeros(2).resize_(5)


def not_finite() -> None:
    """What stands for inf is the largest number of a dtype."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([1.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
        x.nan_to_num()
        torch.nan_to_num(x, posinf=3.0)
        x.clone().nan_to_num_()


def values_alone() -> None:
    """Outputs without a gradient."""
    _, values, _ = torch.linalg.svd(normal(6, 4).requires_grad_())
    values.sum().backward()


def backward_outside_of_autocast() -> None:
    """Under it the products in svd's gradient would be 16-bit ones."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        left, values, _ = torch.linalg.svd(normal(6, 4).requires_grad_(), full_matrices=False)
    (values.sum() + left.abs().sum()).backward()


PROGRAMS = (indices, layouts, on_arrays, odd_arguments, growing, by_sizes, values_alone, backward_outside_of_autocast)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_recorded_program_passes(tmp_path: Path, program: Callable[[], None], task: str) -> None:
    path = captured(tmp_path, program, task=task)
    found = verdicts(path)
    assert {name: each.reason for name, each in found.items() if each.verdict != "pass"} == {}
    if program is indices:
        assert [len(each.outputs[0].shape) for name, each in found.items() if "getitem" in name] == [1, 2, 0]
    if program is layouts:
        assert found["Torch.sub.0.forward"].outputs[0].metrics["noise_ratio"] == 0.0
    if program is on_arrays:
        assert len(found) > 40
        assert set(outcomes(verdicts(path, dtype="bfloat16")).values()) == {"pass"}


def test_numbers_that_are_not_finite_are_replayed(tmp_path: Path) -> None:
    assert set(outcomes(verdicts(captured(tmp_path, not_finite, task="tensor"))).values()) == {"pass"}


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


def on_one_cast() -> None:
    """Gradients that several calls gave to one cast."""
    x, y, weight = normal(8, 16), normal(8, 16, seed=1).requires_grad_(), normal(4, 16, seed=2).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = F.linear(x, weight).sum() + F.linear(y.bfloat16(), weight).sum()
    total.backward()


LINEAR = "Functional.linear.0.backward"


@pytest.mark.parametrize(
    ("program", "judged"),
    [
        (training, {LINEAR: ["grad.input.0", "grad.input.1"]}),
        (on_one_cast, {LINEAR: ["grad.input.1"], "Functional.linear.1.backward": ["grad.input.0", "grad.input.1"]}),
        (values_alone, {"Torch.linalg.svd.0.backward": ["grad.input.0"]}),
        (layouts, {"Tensor.mul_.0.forward": ["output.0"]}),
        (on_arrays, {}),
    ],
)
def test_stored_outputs_and_gradients_are_judged(
    tmp_path: Path, program: Callable[[], None], judged: dict[str, list[str]]
) -> None:
    found = verdicts(captured(tmp_path, program, task="tensor"), device="recorded")
    assert "error" not in outcomes(found).values()
    assert {name: [output.name for output in found[name].outputs] for name in judged} == judged
    assert {found[name].verdict for name in judged} <= {"pass"}
    arrays = {each.verdict for name, each in found.items() if name.startswith("Torch.as_tensor") or "getitem" in name}
    assert arrays == {"pass"} or program is not on_arrays


@pytest.mark.parametrize(
    ("program", "stored", "factor", "wrong"),
    [
        (training, "Functional.linear.0.backward.output.0", 1.001, "grad.input.0"),
        (training, "Functional.linear.0.backward.output.1", 1.001, "grad.input.1"),
        (training, "Functional.linear.0.backward.input.0", 1.001, ""),
        # As the sum of both calls' is.
        (on_one_cast, "Functional.linear.0.backward.output.0", 1.02, ""),
        (on_one_cast, "Functional.linear.1.backward.output.1", 1.02, ""),
    ],
)
def test_a_wrong_stored_gradient_is_an_error(
    tmp_path: Path, program: Callable[[], None], stored: str, factor: float, wrong: str
) -> None:
    path = captured(tmp_path, program, task="tensor")
    file = path.parent / "dump_tensor_data" / f"{stored}.pt"
    torch.save(torch.load(file) * factor, file)
    found = verdicts(path, device="recorded")
    name = stored.partition(".backward")[0] + ".backward"
    assert [each for each, verdict in outcomes(found).items() if verdict == "error"][-1:] == [name]
    names = [output.name for output in found[name].outputs if output.verdict == "error"]
    assert names == [wrong] or not wrong


@pytest.mark.parametrize(
    ("entry", "skipped"),
    [
        ("Functional.linear.0.backward", ["Functional.linear.0.backward"]),
        ("Tensor.sum.0.forward", ["Tensor.sum.0.forward", "Tensor.sum.0.backward"]),
    ],
)
def test_what_was_not_recorded_is_a_skip(tmp_path: Path, entry: str, skipped: list[str]) -> None:
    def change(content: dict[str, Any]) -> None:
        content["data"][entry] = {"probe": {"failed": "ValueError: too odd"}}

    found = verdicts(edited(captured(tmp_path, training), change))
    assert {name: each.kind for name, each in found.items() if each.verdict != "pass"} == dict.fromkeys(
        skipped, "not recorded"
    )
    assert "the capture could not record it (ValueError: too odd)" in found[entry].reason


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


def test_statistics_hold_no_gradients_to_judge(tmp_path: Path) -> None:
    found = verdicts(captured(tmp_path, training), device="recorded")
    assert {(verdict.verdict, verdict.kind) for verdict in found.values()} == {("skip", "no stored tensors")}
