"""What docs/moving.md says in tables: its commands run as they stand there, on files that the tools wrote.

Each row of its tables of commands has a run, a capture, or a test elsewhere that the row names here. Rows share runs.
In Chinese the page has the same commands, as test_pages.py says.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from msgspec import Struct
from torch.nn import functional as F

from pytest_probe import PrecisionDebugger
from pytest_probe.frameworks import unavailable
from pytest_probe.options import OPTIONS
from tests.support import paddle_dumps
from tests.support.dumps import DATA, unpack
from tests.support.pages import PAGES, ROOT, blocks, command_rows, run_command
from tests.support.running import rows
from tests.support.tool_files import add_files_of_tools

ROWS = command_rows("docs/moving.md")
# An accelerator that is not here, by its name, whose gelu is wrong; and a program of one step.
CONFTEST = """
from tests.support.devices import Emulated

class Npu(Emulated):
    def call(self, function, args, kwargs):
        found = function(*args, **kwargs)
        return found * 1.01 if getattr(function, "__name__", "") == "gelu" else found

def pytest_probe_register(registry):
    registry.devices["npu"] = Npu
"""
TRAIN = """
import torch
torch.nn.Linear(4, 2)(torch.randn(3, 4)).relu().square().mean().backward()
"""


class Run(Struct, frozen=True):
    """Commands of rows, one after another in one folder: each is of spans of code in these rows' cells, in which names
    stand for those that the page has. prints are patterns of what they print, statuses what they end with; check looks
    at the folder. needs: the framework without which they cannot run, "" for torch."""

    rows: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    names: Mapping[str, str] = {}
    prints: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (0,)
    check: Callable[[Path], None] = lambda folder: None
    needs: str = ""


def _saved(folder: Path) -> None:
    """The lists of msprobe's file and the options choose; tables have its names; a saved script makes its call."""
    found = {each["id"].rpartition("::")[2] for each in rows(folder / "DIR")}
    assert {"Functional.gelu.0.forward", "Functional.linear.0.forward"} < found
    assert not any("layer_norm" in name or "embedding" in name or name.startswith("Torch.") for name in found)
    for kind in ("result", "details"):
        assert len(list((folder / "DIR").glob(f"accuracy_checking_{kind}_*.csv"))) == 1
    (script,) = (folder / "DIR").rglob("Functional.gelu.0.forward.py")
    with patch.object(sys, "argv", [str(script)]):
        runpy.run_path(str(script), run_name="__main__")


def _on_two_devices(folder: Path) -> None:
    assert {each["device"] for each in rows(folder / "DIR")} == {"npu:0", "npu:1"}


def _table(text: str) -> list[list[str]]:
    return list(csv.reader(text.removeprefix("\ufeff").splitlines()))


def _compared(folder: Path) -> None:
    """Columns, names and statuses are those of the tool's own table of the same two files."""
    name = "expected_api_precision_compare_details_noise-vs-clean.csv.gz"
    packed = (DATA / "peers/msprobe-26.2.0/cnn/stat_L1" / name).read_bytes()
    (path,) = folder.glob("DIR/api_precision_compare_details_*.csv")
    own, ours = _table(gzip.decompress(packed).decode("utf-8")), _table(path.read_text(encoding="utf-8"))
    assert ours[0] == own[0]
    place = own[0].index("比对结果")
    assert [(row[0], row[place]) for row in ours] == [(row[0], row[place]) for row in own]


def _summarised(folder: Path) -> None:
    """The table has the rows of the tool's own of the same logs."""
    own = _table((folder / "unpacked/gpt_times/prof_summary.csv").read_text(encoding="utf-8"))
    ours = _table((folder / "DIR/prof_summary.csv").read_text(encoding="utf-8"))
    assert {row[0] for row in ours} == {row[0] for row in own}


def _compared_dumps(folder: Path) -> None:
    assert (folder / "DIR/compare_result_msprobe.csv").exists()
    assert "probe-against" in (folder / "page.html").read_text(encoding="utf-8")


def _written(*names: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        assert all(list(folder.glob(name)) for name in names)

    return check


CHECK = (
    "pytest --probe-dump=dump.json", "--probe-device=npu:0", "--probe-out=DIR --probe-save=failing",
    "--probe-unique", "--probe-standards-file=config.json", "--probe-api=GLOB", "--probe-skip-api=GLOB",
)  # fmt: skip
PADDLE = "pytest --probe-dump=forward_rank0_all.json"
OF_MSPROBE = {"dump.json": "msprobe/dump.json"}
PKL = "cnn_v4.0.T2/rank0/api_stack_dump.pkl"
RUNS = (
    Run(
        ("`acc_check", "`-o DIR`", "`-d 0`", "`-save_error_data`", "`-csv_path", "`-f` (filter)", "`-config",
         "`op_generate`"),
        (CHECK, (*CHECK, "--probe-out=DIR --probe-resume")),
        {**OF_MSPROBE, "-skip-api=GLOB": "-skip-api=*embedding*", "-api=GLOB": "-api=Functional.*"},
        ("2 errors: looks like all times 1.01, Functional.gelu*", "*folded: *", "*the .py next to it makes the call*",
         "*to reproduce: pytest *", "*going on with the run in *", "*found before the run was resumed*"),
        (1, 1),
        _saved,
    ),
    Run(
        ("`multi_acc_check", "`-o DIR`", "`-config"),
        (("pytest --probe-dump=dump.json --probe-device=npu:0,npu:1 -n 8", "--probe-api=GLOB", "--probe-out=DIR"),),
        {**OF_MSPROBE, "-n 8": "-n 2", "GLOB": "Functional.l*"},
        ("* cases, * pass",),
        check=_on_two_devices,
    ),
    Run(
        ("`api_precision_compare",),
        (("pytest-probe compare A.csv B.csv -o DIR", "--standard=msprobe-26"),),
        prints=("133 outputs on both sides, judged by msprobe-26: *",),
        statuses=(1,),
        check=_compared,
    ),
    Run(
        ("`compare` of two dumps", "`graph_visualize`", "`-o DIR`"),
        (("pytest --probe-dump=A --probe-against=B", "--probe-against=B --probe-html=page.html", "--probe-out=DIR"),),
        {"-dump=A": "-dump=msprobe-8.3.3/cnn/dump.json", "-against=B": "-against=msprobe-26.2.0/cnn/dump.json"},
        ("A against B, * cases: *",),
        check=_compared_dumps,
    ),
    Run(
        ("`compare(input_param", "`parse(pkl, prefix)`"),
        (("pytest --probe-dump=npu_dump.pkl --probe-against=bench_dump.pkl --probe-out=DIR",),
         ("pytest-probe show npu_dump.pkl",)),
        {"npu_dump.pkl": f"ptdbg/npu/{PKL}", "bench_dump.pkl": f"ptdbg/bench/{PKL}"},
        ("A against B, * 1 own error*", "first suspect: Torch.mul.0.forward*", "*ptdbg 4, 45 entries*"),
        (0, 0),
        _written("DIR/compare_result_ptdbg_2.3.csv", "DIR/compare_result_ptdbg_4.0.csv", "DIR/advisor.txt"),
    ),
    Run(
        ("`run_paddle.py", "`-out DIR`", "`-dtype", "`-op ", "`-mode acc`", "`remove_repeat"),
        ((PADDLE, "--probe-out=DIR", "--probe-save=all", "--probe-dtype=float32,bfloat16", "--probe-api=paddle.sum",
          "--probe-unique", "--probe-mode=acc"),
         ("pytest 'forward_rank0_all.json::paddle.sum.0.forward'",)),
        {"paddle.sum": "paddle.Tensor.sum", "-mode=acc": "-mode=acc,time,mem"},
        ("4 cases, 4 pass", "times: 4 cases*", "1 case, 1 pass"),
        (0, 0),
        _written("DIR/prof_checking_result.csv", "DIR/memory_checking_result.csv", "DIR/saved/*/*"),
        "paddle",
    ),
    Run(
        ("`json_transfer.py`", "`run_paddle.py"),
        ((PADDLE, "--probe-framework=torch", "--probe-reference-framework=torch"),),
        {"forward_rank0_all.json": "forward_rank0_all.json --probe-api=paddle.*sqrt"},
        ("* pass*",),
        needs="paddle",
    ),
    Run(
        ("`-real DIR`", "`run_paddle.py"),
        ((PADDLE, "--probe-inputs=stored --probe-data-dir=DIR"),),
        {"forward_rank0_all.json": "rank0_step0/forward_rank0_all.json", "dir=DIR": "dir=rank0_step0"},
        ("48 cases, 46 pass, 2 skip",),
        needs="paddle",
    ),
    Run(
        ("PaddleAPITest's",), (("pytest --probe-dump=calls.txt",),),
        {"calls.txt": "calls.txt --probe-api=paddle.Tensor.__add__"}, ("16 cases, 14 pass, 2 skip",), needs="paddle",
    ),
    Run(
        ("`acc_multi_cmp.py`",),
        (("pytest-probe compare DEVICE BENCHMARK --standard=paddleapex -o DIR",),),
        {"DEVICE": "device.csv", "BENCHMARK": "benchmark.csv"},
        ("88 outputs on both sides, judged by paddleapex: *",),
        (1,),
        _written("DIR/api_precision_compare_details_*.csv"),
    ),
    Run(
        ("`prof_cmp`",),
        (("pytest-probe compare DEVICE BENCHMARK -o DIR --time --memory --summary=RESULT.csv",),),
        # On a CPU PaddleAPEX writes no log of the memory.
        {"DEVICE": "paddleapex/bfloat16", "BENCHMARK": "paddleapex/float32", "--time --memory": "--time",
         "RESULT.csv": "unpacked/gpt_times/accuracy_checking_result.csv"},
        ("*written*prof_summary.csv",),
        check=_summarised,
    ),
    Run(
        ("`acc_direct_cmp.py",),
        (("pytest-probe compare B A --direct --standard=paddleapex -o DIR",),),
        {" B A": " paddleapex/bench paddleapex/bench"},
        ("40 calls, judged by paddleapex, output by output: 56 pass",),
    ),
    Run(
        ("`PrecisionDebugger(config_path", '`"task": "tensor"`'),
        (("pytest-probe capture train.py",), ("pytest-probe capture --task=tensor train.py",)),
        {"capture --task": "capture -o tensors --task"},
        statuses=(0, 0),
        check=_written("**/dump.json", "tensors/**/dump_tensor_data/*"),
    ),
    Run(
        ("`start_hook_torch_net()`", "`hook_inside", "`parall_execute", "`performance.log`", "two logs"),
        (("pytest-probe time train.py", "--nested", "--async", "-o DIR"), ("pytest-probe compare A B --time",)),
        {"time train.py": "time", "-o DIR": "-o DIR train.py", " A B": " DIR DIR"},
        ("*Functional.linear*",),
        (0, 0),
        _written("DIR/time.jsonl", "DIR/trace.json"),
    ),
)  # fmt: skip
# What records, by the row and the code in it, and the calls that are in its dump.
CAPTURES = {
    ("`set_dump_switch", 'PrecisionDebugger(..., list=["relu"])'): {"Functional.relu.0.forward"},
    ("`mode=\"range\"", "PrecisionDebugger(..., scope=[first, last])"): {
        "Functional.relu.0.forward", "Functional.softmax.0.forward"
    },
    ("`dump_mode", 'PrecisionDebugger(..., data_mode=["forward"])'): {
        "Functional.linear.0.forward", "Functional.relu.0.forward", "Functional.softmax.0.forward"
    },
}  # fmt: skip
# Rows whose claims are tested where what they name is.
ON_THE_PAGE = "tests/acceptance/test_pages.py::test_the_code_blocks_of_a_page_run_and_print_what_it_shows"
ELSEWHERE = {
    "`overflow_check -api_info": ON_THE_PAGE,
    "`-f mindspore run_ut": ON_THE_PAGE,
    "`compare_distributed(": ON_THE_PAGE,
    "`run_ut` of the api_accuracy_checker": ON_THE_PAGE,
    '`"online_run_ut"': "tests/features/online/test_online_streams.py::test_the_configurations_of_msprobe",
    "`from msprobe.mindspore": "tests/acceptance/test_mindspore_capture.py::test_a_training_step",
    "`seed_all(seed": "tests/capture/test_debugger.py::test_seed_all_lets_dropouts_keep_all_until_a_call_without",
    "`register_hook(rank": "tests/capture/test_debugger.py::"
    "test_rank_folder_names_the_folder_of_a_process_that_nothing_gave_a_number",
    "`register_custom_api": "tests/capture/torch/test_namespaces.py::test_extension_functions_stand_in_modules",
    "`-j`": "tests/acceptance/test_moving.py::test_the_compile_mode_of_the_npu_surrounds_each_call",
    "`config_check`": "tests/capture/test_msprobe_configs.py::test_an_example_of_a_guide_is_read_or_refused_by_name",
    "`register_hook(model, acc_cmp": "tests/acceptance/test_own_capture.py::test_a_captured_model_passes_its_check",
    "`register_hook(model, overflow": "tests/capture/test_debugger.py::test_overflows_are_counted_and_end_the_program",
    "`seed_all(1234)": "tests/acceptance/test_own_capture.py::test_a_captured_model_passes_its_check",
    "`summary_only": "tests/acceptance/test_own_capture.py::test_a_captured_model_passes_its_check",
    "`filter_switch": "tests/capture/torch/test_values.py::test_kinds_that_are_not_asked_for_have_no_values",
    '`mode="api_stack"': 'tests/capture/test_compiled.py::"structure"',
    "`Tracer()": "tests/capture/test_tracer.py::test_the_tracer_writes_entries_as_paddleapex_does",
    "`dump_mode: random": "tests/capture/test_tracer.py::test_the_tracer_writes_entries_as_paddleapex_does",
    "`start_analysis()": "tests/acceptance/test_time_command.py::start_analysis",
}
# Rows that no test here runs, and why.
NOT_RUN = {"`-backend gpu": "it needs Paddle for a GPU", '`mode="acl"': "it has no command here"}
# Those of msprobe's own files: of the release, or of a guide, by the row that they are of.
CONFIGS = {
    "`PrecisionDebugger(config_path": ("bundled", "26.2.0", "statistics"),
    '`"task": "tensor"`': ("guides", "8.2.0, docs/03.config_examples.md", "tensor"),
    '`"task": "overflow_check"': ("guides", "1.1.0, docs/03.config_examples.md", "overflow_check"),
    '`"task": "free_benchmark"': ("guides", "1.0.4, docs/15.free_benchmarking_PyTorch.md", "free_benchmark"),
    "`is_deterministic`": ("guides", "1.0.1, config/README.md", "tensor"),
}


def cells(*rows: str) -> set[str]:
    """The code in our cells of these rows."""
    found = [row for row in ROWS if row.left.startswith(rows)]
    assert len({row.left for row in found}) >= len(rows), rows
    return {span for row in found for span in row.spans}


def test_each_row_of_the_page_is_run_or_names_its_test() -> None:
    known = (*(row for run in RUNS for row in run.rows), *(row for row, _ in CAPTURES), *ELSEWHERE, *CONFIGS, *NOT_RUN)
    assert [row.left for row in ROWS if not row.left.startswith(known)] == []
    assert [row for row in known if not any(each.left.startswith(row) for each in ROWS)] == []
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert name in (ROOT / path).read_text(encoding="utf-8"), place


@pytest.mark.parametrize("run", RUNS, ids=[run.rows[0].strip("`") for run in RUNS])
def test_the_commands_of_a_row_run_on_files_of_the_tool(
    run: Run, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    if run.needs and unavailable(run.needs):
        pytest.skip(f"needs {run.needs}")
    _add_files(pytester.path)
    pytester.makeconftest(CONFTEST)
    known, printed = cells(*run.rows), ""
    for spans, status in zip(run.commands, run.statuses, strict=True):
        assert known.issuperset(spans)
        command = " ".join(spans)
        for old, new in run.names.items():
            command = command.replace(old, new)
        printed += run_command(shlex.split(command), status, pytester, capfd)
    pytest.LineMatcher(printed.splitlines()).fnmatch_lines_random(run.prints)
    run.check(pytester.path)


def _add_files(folder: Path) -> None:
    add_files_of_tools(folder)
    for release in ("8.3.3", "26.2.0"):
        unpack(f"msprobe-{release}/cnn", folder)
    peers = DATA / "peers/msprobe-26.2.0/cnn/stat_L1"
    apex = DATA / "peers/paddleapex/gpt/results/random"
    for name, (parent, pattern) in {
        "A.csv": (peers, "expected_accuracy_checking_details_noise1e-3.csv.gz"),
        "B.csv": (peers, "expected_accuracy_checking_details.csv.gz"),
        "device.csv": (apex, "direct_cmp_fp32_vs_bf16/*.csv.gz"),
        "benchmark.csv": (apex, "direct_cmp_fp32_vs_self/*.csv.gz"),
    }.items():
        (packed,) = parent.glob(pattern)
        (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    paddle_dumps.unpack("gpt_random", folder)
    paddle_dumps.unpack_real(folder)
    (folder / "calls.txt").write_bytes(paddle_dumps.LINES.read_bytes())
    (folder / "train.py").write_text(TRAIN)
    # The lists of the file that the release brings are empty.
    lists = _config("bundled", "26.2.0", "statistics")["acc_check"] | {"black_list": ["layer_norm"]}
    (folder / "config.json").write_text(json.dumps({"task": "acc_check", "acc_check": lists}))


def _config(kept: str, name: str, task: str) -> dict[str, Any]:
    lines = (DATA / f"msprobe-configs/{kept}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [each for each in map(json.loads, lines) if name in (*each.get("releases", ()), each.get("guide"))]
    content: dict[str, Any] = next(each["content"] for each in found if each["content"]["task"] == task)
    return content


X, WEIGHT = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8)


def _step() -> None:
    F.softmax(F.relu(F.linear(X, WEIGHT)), 1).backward(torch.ones(4, 8))


def _recorded(folder: Path) -> set[str]:
    return {name for path in folder.rglob("dump.json") for name in json.loads(path.read_text())["data"]}


@pytest.mark.parametrize(("row", "code"), CAPTURES)
def test_what_selects_calls_records_them(row: str, code: str, tmp_path: Path) -> None:
    assert code in cells(row)

    def debugger(*_: Any, **options: Any) -> PrecisionDebugger:
        return PrecisionDebugger(dump_path=tmp_path, **options)

    names = {"first": "Functional.relu.0.forward", "last": "Functional.softmax.0.forward"}
    found = eval(code, {"PrecisionDebugger": debugger, **names})  # of the page
    found.start()
    _step()
    found.stop()
    found.step()
    found.close()
    calls = {name for name in _recorded(tmp_path) if name.startswith("Functional.")}
    assert {name for name in calls if name.endswith("forward")} == CAPTURES[row, code]
    assert bool([name for name in calls if name.endswith("backward")]) == ("data_mode" not in code)


@pytest.mark.parametrize("row", CONFIGS)
def test_a_file_of_msprobes_records_a_training(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    content = _config(*CONFIGS[row]) | {"dump_path": str(tmp_path / "dumps")}
    (tmp_path / "config.json").write_text(json.dumps(content))
    debugger = PrecisionDebugger(config_path=str(tmp_path / "config.json"))
    assert torch.initial_seed() == content.get("seed", torch.initial_seed())
    debugger.start()
    _step()
    debugger.stop()
    debugger.step()
    debugger.close()
    # A healthy training overflows nowhere, and leaves nothing suspicious.
    wanted = set() if content["task"] in ("overflow_check", "free_benchmark") else {"Functional.linear.0.forward"}
    assert _recorded(tmp_path / "dumps") >= wanted
    assert bool(list((tmp_path / "dumps").rglob("*.pt"))) == (content["task"] == "tensor")


@pytest.mark.parametrize("page", ["docs/moving.md", "docs/zh/moving.md"])
def test_each_option_that_the_page_names_exists(page: str) -> None:
    named = set(re.findall(r"--probe-[a-z-]*[a-z]", PAGES[page].read_text(encoding="utf-8")))
    assert len(named) > 20
    assert not named - {option.flag for option in OPTIONS}


def test_the_compile_mode_of_the_npu_surrounds_each_call(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-j, on a dump of msprobe's: the compiler that docs/hooks.md shows, and a stand-in for torch_npu's switch."""
    asked: list[bool] = []
    switch = SimpleNamespace(set_compile_mode=lambda *, jit_compile: asked.append(jit_compile))
    monkeypatch.setattr(torch, "npu", switch, raising=False)
    (conftest,) = [block.text for block in blocks("docs/hooks.md") if '"npu-jit"' in block.text]
    pytester.makeconftest(conftest)
    dump = gzip.decompress((ROOT / "tests/data/msprobe-26.2.0/gpt/dump.json.gz").read_bytes())
    (pytester.path / "dump.json").write_bytes(dump)
    result = pytester.runpytest_inprocess(
        "--probe-dump=dump.json", "--probe-device=cpu", "--probe-compile=npu-jit", "--probe-api=Functional.gelu"
    )
    assert not result.ret
    assert result.parseoutcomes()["passed"]
    assert asked == [True, False] * (len(asked) // 2)
    assert asked
