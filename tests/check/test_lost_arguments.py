"""Records of ptdbg have positional arguments only: they run where the stored outputs tell which call it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Case, preview
from pytest_probe.features.timing.measure import TimeAndMemory
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support.checking import verdicts
from tests.support.ptdbg_dumps import unpack, values, write

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
T = torch.from_numpy(X)
IMAGE = RNG.standard_normal((2, 4, 9, 9)).astype(np.float32)
KERNEL = RNG.standard_normal((6, 2, 3, 3)).astype(np.float32)
AS_THEY_STAND = "only positional arguments were recorded: run with them as they stand, which gives the stored output"
STORED_LATE = "in-place input stored after the call"


def found(folder: Path, call: str, inputs: Sequence[Any], outputs: Any, **request: Any) -> Verdict:
    """The verdict on one call; outputs are torch's."""
    several = isinstance(outputs, (tuple, list))
    arrays = tuple(np.asarray(each) for each in outputs) if several else np.asarray(outputs)
    (verdict,) = verdicts(write(folder, values(f"{call}_0", inputs, arrays)), **request).values()
    return verdict


def noted(value: str) -> tuple[str, ...]:
    words = f"run with {value}, which was not recorded and gives the stored output"
    return (f"only positional arguments were recorded: {words}",)


LATE = ("Tensor.add_.", "Tensor.mul_.")
COUNTER = "Tensor.add_.0.forward"


@pytest.mark.parametrize(("name", "count", "keywords"), [("v2.3-all", 28, 1), ("v4-all", 26, 2)])
def test_ptdbg_dumps_pass_with_completed_arguments(tmp_path: Path, name: str, count: int, keywords: int) -> None:
    """All runs, and passes, but a counter that no earlier record stored. Of some calls a keyword is missing, of those
    in place the input, and of an optimizer's step the learning rate: the outputs tell."""
    told = verdicts(unpack(name, tmp_path), device="cpu")
    passed = {case: each.notes[0] for case, each in told.items() if each.verdict == "pass"}
    assert len(passed) == count
    assert {case: (each.verdict, each.kind) for case, each in told.items() if case not in passed} == {
        COUNTER: ("skip", STORED_LATE)
    }
    assert passed["Tensor.add_.3.forward"] == noted("the tensor of Functional.batch_norm.0 as input.0, alpha=-0.1")[0]
    others = [note for case, note in passed.items() if not case.startswith(LATE) and note != AS_THEY_STAND]
    assert others == [*noted("dim=1")] * keywords


@pytest.mark.parametrize("name", ["v2.3-all", "v4-all"])
def test_what_the_stored_outputs_found_does_not_judge_them(tmp_path: Path, name: str) -> None:
    told = verdicts(unpack(name, tmp_path), device="recorded")
    rest = {case: each.kind for case, each in told.items() if each.verdict != "pass"}
    late = [case for case in told if case.startswith(LATE) and case != COUNTER]
    assert rest == {COUNTER: STORED_LATE, **dict.fromkeys(late, "lost argument")}
    assert "was found by the stored output, and so cannot judge it" in told[late[0]].reason


@pytest.mark.parametrize(
    ("call", "inputs", "outputs", "value"),
    [
        ("Torch_sum", [X], T.sum(0), "dim=0"),
        ("Torch_cat", [[X, Y]], torch.cat([T, torch.from_numpy(Y)], 1), "dim=1"),
        ("Tensor_log_softmax", [X], T.log_softmax(0), "dim=0"),
        ("Torch_split", [X, 2], T.split(2, 1), "dim=1"),
        ("Functional_mse_loss", [X, Y], (T - torch.from_numpy(Y)).square().sum(), "reduction='sum'"),
        ("Functional_mse_loss", [X, Y], (T - torch.from_numpy(Y)).square(), "reduction='none'"),
        ("Torch_var", [X], T.var(unbiased=False), "unbiased=False"),
        ("Tensor_to", [X], T.to(torch.float64), "dtype=float64"),
        ("Functional_avg_pool1d", [X, 3, 1, 1], F.avg_pool1d(T, 3, 1, 1, False, False), "count_include_pad=False"),
        ("Torch_clamp", [X], T.clamp(min=0.1), "min=0.1"),
        ("Tensor_clip", [X], T.clip(-0.5, 0.25), "min=-0.5, max=0.25"),
        ("Tensor___rsub__", [X], 1 - T, "1=1.0"),
        ("Tensor___rtruediv__", [X], 3 / T, "1=3.0"),
        ("Torch_mul", [X], T * 0.125, "1=0.125"),
        ("Tensor___pow__", [np.abs(X)], T.abs() ** 1.5, "1=1.5"),
        ("Torch_add", [X, Y], torch.add(T, torch.from_numpy(Y), alpha=-0.01), "alpha=-0.01"),
        ("Functional_leaky_relu", [X], F.leaky_relu(T, 0.2), "negative_slope=0.2"),
        ("Tensor_reshape", [X], T.reshape(2, 6), "1=[2, 6]"),
        ("Torch_transpose", [X.reshape(3, 2, 2)], T.reshape(3, 2, 2).transpose(0, 2), "1=0, 2=2"),
        ("Functional_layer_norm", [X, None, Y[0]], F.layer_norm(T, [4], torch.tensor(Y[0])), "1=[4]"),
        (
            *("Functional_conv2d", [IMAGE, KERNEL]),
            F.conv2d(torch.from_numpy(IMAGE), torch.from_numpy(KERNEL), None, 2, 1, 1, 2),
            "stride=2, padding=1, dilation=1, groups=2",
        ),
        ("Functional_max_pool2d", [IMAGE], F.max_pool2d(torch.from_numpy(IMAGE), 3, 2, 1), "1=3, stride=2, padding=1"),
    ],
)
def test_one_value_for_what_is_missing(
    tmp_path: Path, call: str, inputs: Sequence[Any], outputs: Any, value: str
) -> None:
    verdict = found(tmp_path, call, inputs, outputs)
    assert (verdict.verdict, verdict.notes[:1]) == ("pass", noted(value)), verdict.reason


def test_a_gap_is_none_or_an_empty_list(tmp_path: Path) -> None:
    image = RNG.standard_normal((1, 1, 4, 4)).astype(np.float32)
    pooled = F.max_pool2d(torch.from_numpy(image), 2)
    verdict = found(tmp_path, "Torch_max_pool2d", [image, 2, None, 0, 1, False], pooled)
    assert (verdict.verdict, verdict.notes) == ("pass", (AS_THEY_STAND,))
    verdict = found(tmp_path / "2", "Tensor_sum", [X, None, True], T.sum((0, 1), keepdim=True))
    assert verdict.verdict == "pass"


@pytest.mark.parametrize(
    ("call", "inputs", "outputs"),
    [
        ("Torch_clamp", [X], T.clamp(min=0.1) * 1.01),
        ("Tensor___mul__", [X], T * torch.from_numpy(Y)),
        ("Tensor_reshape", [X], T.flatten().flip(0).reshape(2, 6)),
        ("Functional_layer_norm", [X, [4]], F.layer_norm(T, [4]) * 1.5),
        ("Torch_sum", [X], T.sum(0) * 1.01),
        ("Torch_sum", [X], T.sum(0, keepdim=True)),
        ("Functional_dropout", [np.ones((8, 8), np.float32)], torch.zeros(8, 8)),
    ],
)
def test_what_no_value_gives_is_lost(tmp_path: Path, call: str, inputs: Sequence[Any], outputs: Any) -> None:
    verdict = found(tmp_path, call, inputs, outputs)
    assert (verdict.verdict, verdict.kind) == ("skip", "lost argument")
    assert "float64 on the stored inputs does not give the stored output" in verdict.reason


@pytest.mark.parametrize("share", [0.9e-3, 1.1e-3])
def test_a_thousandth_of_the_scale_is_near(tmp_path: Path, share: float) -> None:
    stored = T.clone()
    stored[0, 0] += share * float(T.abs().max())
    verdict = found(tmp_path, "Torch_neg", [-X], stored)
    assert verdict.verdict == ("pass" if share < 1e-3 else "skip")


@pytest.mark.parametrize(
    ("name", "outputs", "value"), [("softmax", T.softmax(0), "dim=0"), ("mul", T * 0.125, "1=0.125")]
)
def test_a_wrong_device_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, outputs: torch.Tensor, value: str
) -> None:
    """What was stored is right, what runs now is not: the record runs, and fails."""
    right = getattr(torch, name)

    def wrong(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return right(x, *args, **kwargs) * (1 if x.dtype == torch.float64 else 1.001)

    monkeypatch.setattr(torch, name, wrong)
    verdict = found(tmp_path, f"Torch_{name}", [X], outputs)
    assert (verdict.verdict, verdict.notes) == ("error", noted(value))
    if name == "mul":  # a number that the stored output told does not judge it
        stored = found(tmp_path / "stored", "Torch_mul", [X], outputs * 1.001, device="recorded")
        assert (stored.verdict, stored.kind) == ("skip", "lost argument")


def test_a_wrong_stored_output_is_found(tmp_path: Path) -> None:
    """It is near enough to tell the call, and judged: a few thousand ULP are none that rounding explains."""
    stored = T.softmax(0) * 1.0005
    verdict = found(tmp_path, "Torch_softmax", [X], stored, device="recorded")
    assert (verdict.verdict, verdict.notes) == ("error", noted("dim=0"))


@pytest.mark.parametrize(("standard", "kind"), [("finite", "abnormal"), ("noise", None)])
def test_a_stored_output_with_nan_is_found(tmp_path: Path, standard: str, kind: str | None) -> None:
    """The other elements tell the call."""
    stored = T.softmax(0)
    stored[1, 1] = torch.nan
    verdict = found(tmp_path, "Torch_softmax", [X], stored, device="recorded", standard=standard)
    assert (verdict.verdict, verdict.notes) == ("error", noted("dim=0"))
    assert verdict.outputs[0].metrics.get("overflow") == kind
    lost = found(tmp_path / "all", "Torch_softmax", [X], stored * torch.nan, device="recorded", standard=standard)
    assert (lost.verdict, lost.kind) == ("skip", "lost argument")


@pytest.mark.parametrize("device", ["cpu", "recorded"])
def test_outputs_that_a_filter_left_out(tmp_path: Path, device: str) -> None:
    """With its filter on ptdbg records no integers: the indices of topk have no line."""
    path = write(tmp_path, values("Torch_topk_0", [X, 2], (T.topk(2)[0].numpy(), None)))
    (verdict,) = verdicts(path, device=device).values()
    assert verdict.verdict == "pass", verdict.reason
    judged = [output.name for output in verdict.outputs]
    if device == "recorded":
        assert judged == ["output.0"]
        assert verdict.notes[-1] == "not judged, because the dump does not have it: output.1"
    else:
        assert judged == ["output.0", "output.1"]


@pytest.mark.parametrize("call", ["Tensor_mul_", "Tensor___iadd__", "Tensor___setitem__", "Functional_relu_"])
def test_an_input_stored_after_an_in_place_call_is_a_skip(tmp_path: Path, call: str) -> None:
    verdict = found(tmp_path, call, [X, Y], T)
    assert (verdict.verdict, verdict.kind) == ("skip", STORED_LATE)


def test_arguments_of_16_bit_calls_are_completed(tmp_path: Path) -> None:
    """ptdbg 4 stores bfloat16 as float32; half its ulp is above a thousandth."""
    wide = RNG.standard_normal((16, 16)).astype(np.float32)
    narrow = torch.from_numpy(wide).bfloat16()
    path = write(tmp_path, values("Torch_exp_0", [narrow.float().numpy()], narrow.exp().float().numpy()))
    path.write_text(path.read_text().replace("torch.float32", "torch.bfloat16"))
    (verdict,) = verdicts(path).values()
    assert (verdict.verdict, verdict.dtype) == ("pass", "bfloat16")


def test_without_stored_tensors_or_outputs_nothing_tells(tmp_path: Path) -> None:
    path = write(tmp_path, values("Torch_neg_0", [X], -X), stored=False)
    (verdict,) = verdicts(path).values()
    assert (verdict.verdict, verdict.kind) == ("skip", "no stored tensors")
    path = write(tmp_path / "outputs", values("Torch_neg_0", [X], None))
    (verdict,) = verdicts(path).values()
    assert (verdict.verdict, verdict.kind) == ("skip", "lost argument")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Missing, of another shape, with Python objects: a skip that names file and line; the others run."""
    found = {key: value for n in range(4) for key, value in values(f"Torch_neg_{n}", [X], -X).items()}
    path = write(tmp_path, found)
    tensors = path.with_suffix("")
    (tensors / "Torch_neg_0_forward_input.0.npy").unlink()
    np.save(tensors / "Torch_neg_1_forward_input.0.npy", X.T)
    np.save(tensors / "Torch_neg_2_forward_output.npy", np.array([{}], dtype=object), allow_pickle=True)
    told = [*verdicts(path).values()]
    assert [each.verdict for each in told] == ["skip", "skip", "skip", "pass"]
    assert {each.kind for each in told[:3]} == {"broken record"}
    assert told[0].reason.startswith(
        f"{path}: Torch.neg.0.forward: line 1, input.0: found no file 'Torch_neg_0_forward"
    )
    assert told[1].reason.startswith(f"{path}: Torch.neg.1.forward: line 3, input.0: found shape (4, 3)")
    assert told[2].reason.startswith(f"{path}: Torch.neg.2.forward: line 6, output.0: found {tensors}/Torch_neg_2_")


def test_what_is_known_without_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, values("Tensor_mul__0", [X, Y], X) | values("Torch_neg_0", [X], -X))
    dump = read_dump(path)
    first, second = (preview(Case(dump, record, "forward"), Registry.default()) for record in dump.records)
    assert first is not None
    assert first.kind == STORED_LATE
    assert second is None


def test_arguments_are_completed_where_only_time_is_measured(tmp_path: Path) -> None:
    """Where nothing is judged the call is found all the same."""
    path = write(tmp_path, values("Torch_softmax_0", [X], T.softmax(1).numpy()))
    (verdict,) = verdicts(path, judged=False, measuring=TimeAndMemory(0.01)).values()
    assert verdict.verdict == "pass"
    assert verdict.time is not None
