from __future__ import annotations

import json
import logging
import os
import pickle
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import relu as imported_before

from pytest_probe import PrecisionDebugger, capture, seed_all
from pytest_probe.errors import OverflowFound, SettingsError
from tests.support import forks, models
from tests.support.capturing import content, entries, forwards, recorded


def steps(
    program: Callable[[], torch.Tensor], debugger: PrecisionDebugger | None = None, count: int = 3
) -> list[float]:
    """The losses of a few steps, recorded as a training script does it."""
    losses = []
    for _ in range(count):
        if debugger:
            debugger.start()
        loss = program()
        if debugger:
            debugger.stop()
            debugger.step()
        losses.append(loss.item())
    return losses


@pytest.mark.evidence
@pytest.mark.parametrize("task", ["statistics", "tensor", "structure"])
@pytest.mark.parametrize("model", models.ALL)
def test_a_recorded_model_has_the_losses_of_a_plain_run(model: str, task: str, tmp_path: Path) -> None:
    seed_all(7)
    alone = steps(models.ALL[model]())
    state = torch.get_rng_state()
    seed_all(7)
    watched = steps(models.ALL[model](), PrecisionDebugger(dump_path=tmp_path, task=task))
    assert watched == alone
    assert torch.equal(torch.get_rng_state(), state)


def test_stop_leaves_no_hook(tmp_path: Path) -> None:
    before = (threading.Thread.start, torch.compile, torch.overrides.has_torch_function, torch.autograd.backward)
    debugger = PrecisionDebugger(dump_path=tmp_path)
    for _ in range(2):
        debugger.start()
        torch.ones(2).sin()
        debugger.stop()
        torch.ones(2).cos()
        after = (threading.Thread.start, torch.compile, torch.overrides.has_torch_function, torch.autograd.backward)
        assert after == before
        assert torch._C._len_torch_function_stack() == 0
    debugger.close()
    assert forwards(entries(tmp_path)) == ["Torch.ones.0", "Tensor.sin.0", "Torch.ones.1", "Tensor.sin.1"]


def test_modes_of_the_program_stay_where_they_are(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path)
    debugger.start()
    with torch.device("cpu"):
        torch.ones(2)
        debugger.stop()
        assert torch._C._len_torch_function_stack() == 1
    assert torch._C._len_torch_function_stack() == 0
    debugger.close()


def test_names_that_were_imported_and_operators(tmp_path: Path) -> None:
    a = torch.ones(2, 2)

    def program() -> None:
        imported_before(a)
        b = a + 1
        b += 1
        a.add(1)
        assert (-a @ a > 2 - a).numel() == 4
        a[0]
        b[0, 1] = 3
        torch.linalg.norm(a)
        torch.special.erf(a)
        torch.fft.fft(a)
        torch.ops.aten.sin(a)
        torch._foreach_add([a, b], 1)

    names = (
        "Functional.relu Tensor.__add__ Tensor.__iadd__ Tensor.add Tensor.__neg__ Tensor.__matmul__ Tensor.__rsub__ "
        "Tensor.__gt__ Tensor.__getitem__ Tensor.__setitem__ Torch.linalg.norm Torch.special.erf Torch.fft.fft "
        "Aten.sin Torch._foreach_add"
    )
    assert forwards(recorded(tmp_path, program)) == [f"{name}.0" for name in names.split()]


def test_an_operator_goes_by_its_own_name_in_lists(tmp_path: Path) -> None:
    x = torch.ones(2)
    assert forwards(recorded(tmp_path, lambda: (x + 1, x.add(1)), white_list=["__add__"])) == ["Tensor.__add__.0"]


def test_writing_that_torch_does_not_count(tmp_path: Path) -> None:
    x = torch.zeros(300, 300)

    def program() -> None:
        torch.sin(x)
        x.data.fill_(2.0)
        torch.sin(x)
        x.numpy()[0, 0] = 5.0
        torch.sin(x)

    found = recorded(tmp_path, program)
    assert [found[f"Torch.sin.{n}.forward"]["input_args"][0]["Max"] for n in range(3)] == [0.0, 2.0, 5.0]


def test_kernels_that_raise_no_version(tmp_path: Path) -> None:
    mean, variance = torch.zeros(2), torch.ones(2)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)

    def program() -> None:
        for _ in range(3):
            F.batch_norm(torch.full((4, 2), 1.0), mean, variance, training=True, momentum=0.5)
            weight.grad = torch.ones(2)
            optimizer.step()
            torch.sin(weight)

    found = recorded(tmp_path, program)
    means = [found[f"Functional.batch_norm.{n}.forward"]["input_args"][1]["Max"] for n in range(3)]
    assert means == [0.0, 0.5, 0.75]
    assert [found[f"Torch.sin.{n}.forward"]["input_args"][0]["Max"] for n in range(3)] == [0.0, -1.0, -2.0]


def test_writing_between_stop_and_start(tmp_path: Path) -> None:
    x = torch.zeros(3)
    debugger = PrecisionDebugger(dump_path=tmp_path)
    for _ in range(2):
        debugger.start()
        torch.sin(x)
        debugger.stop()
        x.data.add_(1)
    debugger.close()
    found = entries(tmp_path)
    assert [found[f"Torch.sin.{n}.forward"]["input_args"][0]["Max"] for n in range(2)] == [0.0, 1.0]


def test_threads_that_the_program_starts(tmp_path: Path) -> None:
    def program() -> None:
        threads = [threading.Thread(target=lambda: [torch.ones(2).sin() for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = recorded(tmp_path, program)
    assert sorted(forwards(found)) == sorted(f"{api}.{n}" for api in ("Torch.ones", "Tensor.sin") for n in range(200))


def test_a_function_of_the_users_own_is_seen_in_the_backward(tmp_path: Path) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return torch.pow(x, 3)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return torch.mul(gradient, 3 * ctx.saved_tensors[0].square())

    found = recorded(tmp_path, lambda: Cube.apply(torch.ones(2, requires_grad=True)).sum().backward())
    assert {"Torch.pow.0.forward", "Tensor.square.0.forward", "Torch.mul.0.forward"} <= set(found)
    assert found["Torch.mul.0.forward"]["is_recompute"] is False


def test_compiled_regions_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def backend(graph: Any, example: Any) -> Any:
        seen.append([node.name for node in graph.graph.nodes])
        return graph.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.ones(3)
    alone = compiled(x)

    def program() -> None:
        assert all(torch.equal(compiled(x) * 1, alone) for _ in range(2))
        torch.compile(lambda x: x.cos() + 1, backend="eager")(x)

    found = recorded(tmp_path, program)
    assert forwards(found) == ["Tensor.__mul__.0", "Torch.equal.0", "Tensor.__mul__.1", "Torch.equal.1"]
    assert len(seen) == 1
    assert len([record for record in caplog.records if "torch.compile" in record.message]) == 1


def test_compiled_functions_run_eagerly_while_they_are_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def backend(graph: Any, example: Any) -> Any:
        made.append(graph)
        return graph.forward

    def program() -> None:
        before(torch.ones(3, requires_grad=True)).sum().backward()
        torch.compile(lambda x: x.tan(), backend=backend)(torch.ones(3))

    torch.compiler.reset()
    before = torch.compile(lambda x: x.sin() + 1, backend=backend)
    found = recorded(tmp_path, program, compiled="eager")
    calls = "Torch.ones.0 Tensor.sin.0 Tensor.__add__.0 Tensor.sum.0 Torch.ones.1 Tensor.tan.0"
    assert forwards(found) == calls.split()
    assert "Tensor.sin.0.backward" in found
    assert "not seen" not in caplog.text
    assert "torch.compile" not in caplog.text
    assert made == []
    before(torch.ones(3))
    assert len(made) == 1


def test_a_stance_of_the_programs_own_holds(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x.sin(), backend="eager")
    with capture(tmp_path, compiled="eager"):
        compiled(torch.ones(3))
        torch.compiler.set_stance("fail_on_recompile")
    try:
        assert torch._dynamo.eval_frame._stance.stance == "fail_on_recompile"
    finally:
        torch.compiler.set_stance("default")
    assert forwards(entries(tmp_path)) == ["Torch.ones.0", "Tensor.sin.0"]


def test_compiled_calls_that_were_not_seen_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x: x.sin(), backend="eager")
    with caplog.at_level(logging.INFO, "pytest_probe"), capture(tmp_path) as debugger:
        for calls in (1, 2):
            for _ in range(calls):
                compiled(torch.ones(3)).cos()
            debugger.step()
    assert "pytest-probe: 3 calls of compiled functions were not seen" in caplog.messages
    assert debugger.finish().unseen == 3


def test_transforms_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = recorded(tmp_path, lambda: torch.func.vmap(torch.sin)(torch.ones(3)))
    assert forwards(found) == ["Torch.ones.0"]
    assert "vmap" in caplog.text


def test_faster_paths_of_modules_are_taken_as_without(tmp_path: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        alone = layer(x)
        found = recorded(tmp_path, lambda: torch.testing.assert_close(layer(x), alone, rtol=0, atol=0))
    assert not [name for name in found if "linear" in name]


def test_what_autocast_and_generators_do_is_kept(tmp_path: Path) -> None:
    x = torch.ones(2, 2)

    def program() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.mm(x, x)
        F.dropout(x, 0.5)

    found = recorded(tmp_path, program)
    assert found["Torch.mm.0.forward"]["probe"] == {"autocast": {"cpu": "bfloat16"}}
    assert len(found["Functional.dropout.0.forward"]["probe"]["rng"]) > 5000


def test_tuples_and_shared_memory(tmp_path: Path) -> None:
    x = torch.ones(4, 4)
    found = recorded(tmp_path, lambda: (x[(0, 1)], x[[0, 1]], torch.add(x, x), x.permute((1, 0))))
    assert found["Tensor.__getitem__.0.forward"]["probe"] == {"tuples": ["input.1"]}
    assert "probe" not in found["Tensor.__getitem__.1.forward"]
    first, second = found["Torch.add.0.forward"]["input_args"]
    assert first["address"] == second["address"]
    assert found["Tensor.permute.0.forward"]["output"][0]["stride"] == [1, 4]


def test_tensors_are_stored_as_they_were_at_the_call(tmp_path: Path) -> None:
    x = torch.arange(6.0).view(2, 3)

    def program() -> None:
        torch.cat([x, x], dim=0)
        x.mul_(2)
        torch.add(input=x.T, other=1)

    found = recorded(tmp_path, program, task="tensor")
    (folder,) = tmp_path.glob("step0/*/dump_tensor_data")
    names = {path.name for path in folder.iterdir()}
    assert {"Torch.cat.0.forward.input.0.1.pt", "Torch.add.0.forward.kwargs.input.pt"} <= names
    before = torch.load(folder / found["Tensor.mul_.0.forward"]["input_args"][0]["data_name"])
    after = torch.load(folder / found["Tensor.mul_.0.forward"]["output"][0]["data_name"])
    assert before.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert after.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert content(tmp_path)["dump_data_dir"] == str(folder)


def test_the_header_and_stacks_of_a_dump_are_written(tmp_path: Path) -> None:
    recorded(tmp_path, lambda: [torch.ones(1) for _ in range(3)])
    head = content(tmp_path)
    wanted = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    assert {key: head[key] for key in wanted} == wanted
    (path,) = tmp_path.glob("step0/*/stack.json")
    ((names, frames),) = json.loads(path.read_text()).values()
    assert names == [f"Torch.ones.{number}.forward" for number in range(3)]
    assert f"File {__file__}" in frames[0]
    assert "torch.ones(1)" in frames[0]
    recorded(tmp_path / "bare", lambda: torch.ones(1), extra_info=False)
    assert json.loads(next((tmp_path / "bare").glob("step0/*/stack.json")).read_text()) == {}


def test_steps_that_are_wanted(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path, step=[1, "3-4"])
    for _ in range(6):
        debugger.start()
        torch.ones(2)
        debugger.stop()
        debugger.step()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step1", "step3", "step4"]
    assert list(entries(tmp_path, 3)) == ["Torch.ones.0.forward"]


def test_overflows_are_counted_and_end_the_program(tmp_path: Path) -> None:
    x = torch.ones(2)
    with pytest.raises(
        OverflowFound, match=r"2 calls gave NaN or inf, the last one Torch.log.2.forward; see .*dump.json"
    ):
        recorded(tmp_path, lambda: (x.sin(), torch.log(x * 0), torch.log(x), torch.log(x * -1)), **{
            "task": "overflow_check", "overflow_nums": 2,
        })  # fmt: skip
    assert torch._C._len_torch_function_stack() == 0
    assert forwards(entries(tmp_path)) == ["Torch.log.0", "Torch.log.2"]


def test_an_overflow_says_its_step_its_layer_and_its_line(tmp_path: Path) -> None:
    class Logarithm(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x)

    model = torch.nn.Sequential(torch.nn.ReLU(), Logarithm())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="overflow_check")
    debugger.start()
    model(torch.ones(2))
    debugger.stop()
    debugger.step()
    debugger.start()
    with pytest.raises(OverflowFound) as raised:
        model(-torch.ones(2))
    debugger.stop()
    _, step, line, layer, command = str(raised.value).splitlines()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert (step, layer) == ("  in step 1", "  of the module 1")
    assert line.startswith(f"  called at {__file__}:")
    assert line.endswith(" in forward: return torch.log(x)")
    assert re.fullmatch(r".* pytest --probe-dump=.*step1/\w+ --probe-standard=finite", command)


def test_the_overflow_check_stops_at_a_nan_of_float8(tmp_path: Path) -> None:
    x, y = (torch.tensor([1.0, last]).to(torch.float8_e4m3fn) for last in (torch.nan, 2.0))
    with pytest.raises(OverflowFound, match=r"Tensor\.clone\.1\.forward"):
        recorded(tmp_path, lambda: (y.clone(), x.clone()), task="overflow_check")


def test_a_call_that_raises_is_left_out_of_the_dump(tmp_path: Path) -> None:
    def program() -> None:
        text: Any = "x"
        with pytest.raises(TypeError, match="must be Tensor"):
            torch.add(torch.ones(1), text)
        torch.ones(1).sin()

    assert forwards(recorded(tmp_path, program)) == ["Torch.ones.0", "Torch.ones.1", "Tensor.sin.0"]


def test_a_device_that_does_not_exist_is_the_calls_own_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="nowhere"):
            torch.ones(2, device="nowhere")

    with capture(tmp_path):
        program()
    # A device that the program itself asks for wrongly is no defect of the capture.
    assert [record.getMessage().partition(": ")[2].partition(":")[0] for record in caplog.records] == [
        "nothing was recorded"
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("counting")
def test_a_call_that_cannot_be_recorded_is_marked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    library = torch.library.Library("probe_tests", "DEF")
    library.define("odd(Tensor x) -> Tensor")
    library.impl("odd", lambda x: x + 1, "CPU")
    x = torch.ones(2, 4)[:, ::2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_probe.capture.torch.values.Values._new", lambda *args: 1 / 0)
        found = recorded(tmp_path, lambda: [torch.ops.probe_tests.odd(x) for _ in range(3)])
    assert found["probe_tests.odd.0.forward"] == {"probe": {"failed": "ZeroDivisionError: division by zero"}}
    assert len(found) == 3
    assert len([record for record in caplog.records if "division by zero" in record.message]) == 1


def test_a_folder_that_can_no_longer_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with capture(tmp_path / "file") as debugger:
        (tmp_path / "file").write_text("")
        assert torch.ones(2).sum() == 2
        debugger.step()
        assert torch.ones(2).sum() == 2
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "the program continues" in errors[0].message


def test_a_capture_inside_another_records_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with capture(tmp_path / "first"), capture(tmp_path / "second"):
        torch.ones(2)
    assert forwards(entries(tmp_path / "first")) == ["Torch.ones.0"]
    assert not (tmp_path / "second").exists()
    assert "another capture runs" in caplog.text


def test_a_dump_that_is_there_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path)
    for _ in range(2):
        debugger.start()
        torch.ones(2)
        debugger.close()
    assert forwards(entries(tmp_path)) == ["Torch.ones.0"]
    assert "there is a dump already" in caplog.text


def test_a_full_disk_ends_the_recording_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    with capture(tmp_path) as debugger:
        torch.ones(2)
        debugger.step()
        monkeypatch.setattr("pytest_probe.capture.dump_files.os.pwrite", full)
        for _ in range(20_000):
            torch.ones(2)
    assert caplog.text.count("No space left on device") == 1
    assert forwards(entries(tmp_path)) == ["Torch.ones.0"]


def test_a_hook_that_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pytest_probe.capture.torch.modes.Watcher.begin", lambda self: 1 / 0)
    with capture(tmp_path):
        assert torch.ones(2).sum() == 2
    assert "start failed (ZeroDivisionError: division by zero); the program continues" in caplog.text


def ran(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return forks.run(["-c", program], folder, os.environ)


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    program = f"""
import os, torch
from pytest_probe import capture
with capture({str(tmp_path)!r}):
    torch.ones(2)
    child = os.fork()
    if not child:
        torch.zeros(2)
        os._exit(0)
    os.waitpid(child, 0)
    torch.ones(3)
"""
    assert ran(program, tmp_path).returncode == 0
    assert forwards(entries(tmp_path)) == ["Torch.ones.0", "Torch.ones.1"]


def test_a_killed_process_leaves_what_was_flushed(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys, time, torch
from pytest_probe import PrecisionDebugger
debugger = PrecisionDebugger(dump_path={str(tmp_path)!r})
debugger.start()
torch.ones(2)
debugger.step()
torch.zeros(2)
path = {str(tmp_path)!r} + f"/step1/proc{{os.getpid()}}/dump.json"
while not (os.path.exists(path) and "zeros" in open(path).read()):
    time.sleep(0.01)
torch.ones(2).sin()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert ran(program, tmp_path).returncode == -9
    assert forwards(entries(tmp_path, 0)) == ["Torch.ones.0"]
    assert forwards(entries(tmp_path, 1))[0] == "Torch.zeros.0"


@pytest.mark.parametrize("last", ["torch.ones(2)", "atexit.register(torch.ones, 3)"])
def test_the_end_of_the_process_writes_what_is_open(last: str, tmp_path: Path) -> None:
    program = f"""
import atexit, torch
from pytest_probe import PrecisionDebugger
debugger = PrecisionDebugger(dump_path={str(tmp_path)!r})
debugger.start()
{last}
"""
    done = ran(program, tmp_path)
    assert done.stderr.startswith("pytest-probe: recorded 1 call of 1 step")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert forwards(entries(tmp_path)) == ["Torch.ones.0"]


def test_seed_all_sets_deterministic_algorithms() -> None:
    seed_all(5, mode=True)
    try:
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        seed_all(5)
    assert not torch.are_deterministic_algorithms_enabled()


def test_seed_all_lets_dropouts_keep_all_until_a_call_without(tmp_path: Path) -> None:
    x = torch.ones(4, 8)
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.AlphaDropout(0.5))
    original = F.dropout
    try:
        seed_all(5, rm_dropout=True)
        seed_all(6, rm_dropout=True)
        assert torch.equal(model(x), x)
        assert all(torch.equal(each(x), x) for each in (F.dropout, F.dropout1d, F.feature_alpha_dropout))
        assert F.dropout(x, 0.3, True, inplace=True) is x
        assert list(recorded(tmp_path, lambda: F.dropout(x))) == ["Functional.dropout.0.forward"]
    finally:
        seed_all(5)
    assert F.dropout is original
    assert not torch.equal(model(x), x)


def test_a_seed_of_the_debugger_leaves_dropouts_as_they_are(tmp_path: Path) -> None:
    try:
        seed_all(5, rm_dropout=True)
        PrecisionDebugger(dump_path=tmp_path, seed=7)
        assert torch.equal(F.dropout(torch.ones(9)), torch.ones(9))
    finally:
        seed_all(5)


def test_rank_folder_names_the_folder_of_a_process_that_nothing_gave_a_number(tmp_path: Path) -> None:
    for number in (0, 3):
        with capture(tmp_path, rank_folder=number):
            torch.ones(2)
    assert sorted(path.name for path in (tmp_path / "step0").iterdir()) == ["rank0", "rank3"]
    taken = pytest.raises(SettingsError, match=r"holds the dump of an earlier run \(step0/rank3\)")
    with taken, capture(tmp_path, rank_folder=3):
        pass
    with capture(tmp_path / "other", rank_folder=0, rank=[3]):
        torch.ones(2)
    assert not (tmp_path / "other").exists()
    with pytest.raises(SettingsError, match="rank_folder: -1 cannot be used; give this process's number, 0 or more"):
        PrecisionDebugger(dump_path=tmp_path, rank_folder=-1)
