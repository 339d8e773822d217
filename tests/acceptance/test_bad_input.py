"""Bad input: one clear message each, and everything that is good still runs. Nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import pytest_probe.frameworks
from tests.acceptance.conftest import DumpMaker, entries, forward, tensor
from tests.support.broken import broken_records
from tests.support.tensor_files import safetensors, with_header

KNOWN = "known are dumps of msprobe 1.0 to 26.2 (dump.json, with entries under the key 'data'), of the "
KNOWN += "api_accuracy_checker of 2023 (forward_info_0.json), of ptdbg (a .pkl that is text) and of PaddleAPEX "
KNOWN += "(forward_rank0.json), text files with a call of Paddle's in each line, and files of named tensors "
KNOWN += "(.safetensors, and a .pt that holds a dictionary)"
NO_ENTRIES = (
    "has the header of a dump but no entries: the key 'data' is missing or is not an object; repeat the capture"
)
HEADER = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null'
ELSEWHERE = "expected the stored tensor there, or in a folder that --probe-data-dir=DIR names"
GENERATED = "--probe-inputs=generated makes values from the statistics instead"


def probe(pytester: pytest.Pytester, *args: str, dump: str = "dump.json") -> pytest.RunResult:
    """A run with results in out/, of which no line is a traceback's."""
    result = pytester.runpytest(f"--probe-dump={dump}", "--probe-out=out", *args)
    for line in (*result.outlines, *result.errlines):
        assert not line.startswith(("E   ", "INTERNALERROR", "Traceback"))
    return result


def reasons(pytester: pytest.Pytester, verdict: str) -> dict[str, tuple[str, str]]:
    """Kind and reason of every item with this verdict, by its name."""
    lines = map(json.loads, (pytester.path / "out/results.jsonl").read_text().splitlines())
    return {
        line["id"].rpartition("::")[2]: (line["kind"], line["reason"]) for line in lines if line["verdict"] == verdict
    }


def passed(pytester: pytest.Pytester) -> set[str]:
    return set(reasons(pytester, "pass"))


GOOD = {name: entry for name, entry in entries().items() if not name.startswith(("Module", "Torch.load"))}


FILES = {
    "empty": (b"", "is empty; repeat the capture"),
    "blank": (b" \r\n\t", "is empty; repeat the capture"),
    "binary": (bytes(range(256)) * 300, f"is not a dump: it is binary; {KNOWN}"),
    "text": (b"hello", f"is not a dump: it begins with 'hello'; {KNOWN}"),
    "list": (b"[1, 2]", f"is not a dump: it begins with '[1, 2]'; {KNOWN}"),
    "number": (b"7", f"is not a dump: it begins with '7'; {KNOWN}"),
    "object": (b'{"name": 1, "items": [2]}', f"is not a dump: it is JSON with the keys name, items; {KNOWN}"),
    "nothing": (b"{}", f"is not a dump: it is a JSON object without keys; {KNOWN}"),
    "utf-16": ((HEADER + "}").encode("utf-16"), "is in UTF-16; save it as UTF-8"),
    "header": ((HEADER + "}").encode(), NO_ENTRIES),
    "null": ((HEADER + ', "data": null}').encode(), NO_ENTRIES),
    "array": ((HEADER + ', "data": []}').encode(), NO_ENTRIES),
    "stack": (
        b'{"Functional.relu.0.forward": ["File x.py, line 1"]}',
        "is the stack file of a dump, not the dump; give the dump.json beside it",
    ),
    "cut": (
        (HEADER + ', "data": {"Functional.relu.0.forward": {"input_args": [').encode(),
        "is damaged or cut off at byte 139 (line 1), in entry Functional.relu.0.forward; no entry could be read; "
        "copy the file again, or repeat the capture",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_dump_is_one_failing_item(pytester: pytest.Pytester, make_dump: DumpMaker, name: str) -> None:
    content, message = FILES[name]
    good, bad = make_dump("good/dump.json", GOOD), pytester.path / "bad.json"
    bad.write_bytes(content)
    result = probe(pytester, f"--probe-dump={good}", dump="bad.json")
    result.assert_outcomes(passed=5, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert reasons(pytester, "error") == {"(damaged)": ("", f"{bad}: {message}")}
    result.stdout.fnmatch_lines([f"{bad}: {message}".replace("[", "[[]"), "to reproduce: pytest 'bad.json::(damaged)'"])


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["serial", "n1"])
def test_a_truncated_dump_runs_what_is_before_the_cut(
    pytester: pytest.Pytester, make_dump: DumpMaker, workers: Sequence[str]
) -> None:
    dump = make_dump()
    text = dump.read_text()
    cut = text.index("[", text.index("Torch.argmax.0.forward")) + 1
    dump.write_text(text[:cut])
    probe(pytester, *workers).assert_outcomes(passed=2, failed=1)
    message = (
        f"{dump}: is damaged or cut off at byte {cut} (line 1), in entry Torch.argmax.0.forward; the last good entry "
        "before is Functional.linear.0.forward; entries kept: 3; copy the file again, or repeat the capture"
    )
    assert reasons(pytester, "error") == {"(damaged)": ("", message)}
    assert passed(pytester) == {"Functional.relu.0.forward", "Functional.linear.0.forward"}
    pytester.runpytest("dump.json::(damaged)").assert_outcomes(failed=1)


def test_an_odd_header_is_noted(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data=GOOD, task="x", level=3, framework=None, dump_data_dir=7, colour="red")
    result = probe(pytester)
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        [
            "probe: dump.json: 3 records (pytorch, x)",
            "probe: dump.json: framework is null, expected a string; taken as pytorch",
            "probe: dump.json: unknown task 'x', known are statistics, tensor, structure, overflow_check, acc_check",
            "probe: dump.json: level is 3, expected a string",
            "probe: dump.json: unknown top-level key 'colour'",
        ]
    )


def test_an_entry_that_occurs_twice_is_noted(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    dump = make_dump(data=GOOD)
    dump.write_text(dump.read_text().replace('"data": {', '"data": {"Functional.relu.0.forward": {}, '))
    result = probe(pytester)
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        ["probe: dump.json: entry Functional.relu.0.forward occurs 2 times, the last one counts"]
    )


def test_every_wrong_field_is_a_skip_of_its_record(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    broken, messages = broken_records()
    dump = make_dump(data={**broken, **{name.replace(".0.", ".900."): entry for name, entry in GOOD.items()}})
    result = probe(pytester)
    result.assert_outcomes(passed=5, skipped=len(messages))
    assert result.ret == pytest.ExitCode.OK
    assert reasons(pytester, "skip") == {
        name: ("broken record", f"{dump}: {message}") for name, message in messages.items()
    }


def test_a_skip_shows_its_message(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    data = entries()
    data["Functional.relu.0.forward"]["input_args"][0]["shape"] = [-2, 3]
    make_dump(data=data)
    for args in ([], ["--probe-dtype=float16"]):
        result = pytester.runpytest("--probe-dump=dump.json", "-rs", *args)
        result.assert_outcomes(passed=3, skipped=3)
        message = "input_args.0.shape.0: found -2, expected an integer from 0 on, below 2[*][*]63"
        result.stdout.fnmatch_lines([f"SKIPPED [[]2[]] *:*: {message} (Functional.relu.0.forward)"])


def test_a_tensor_larger_than_memory_is_skipped_as_too_large(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    huge = tensor(10**6, 10**6)
    dump = make_dump(data={"Functional.gelu.0.forward": forward(huge, output=huge), **GOOD})
    probe(pytester).assert_outcomes(passed=5, skipped=1)
    kind, reason = reasons(pytester, "skip")["Functional.gelu.0.forward"]
    assert kind == "too large"
    start = f"{dump}: Functional.gelu.0.forward: input_args.0: found float32 of shape [1000000, 1000000];"
    assert reason.startswith(start)
    assert " checking the call takes about 24,000.0 GB, more than the " in reason


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("9" * 10_000, "a value that cannot be decoded"),
        ('"' + "x" * 100_000_000 + '"', "an entry of 100,000,"),
        ("[" + ",".join(["1"] * 10_000_000) + "]", "an entry of 20,000,"),
    ],
    ids=["digits", "text", "list"],
)
def test_a_value_beyond_all_bounds_is_skipped_undecoded(
    pytester: pytest.Pytester, make_dump: DumpMaker, value: str, found: str
) -> None:
    """It is refused before it is decoded."""
    record = forward(tensor(2, 3), {"type": "int", "value": "VALUE"}, output=tensor(2, 3))
    dump = make_dump(data={"Torch.add.0.forward": record, **GOOD})
    dump.write_text(dump.read_text().replace('"VALUE"', value))
    probe(pytester).assert_outcomes(passed=5, skipped=1)
    kind, reason = reasons(pytester, "skip")["Torch.add.0.forward"]
    assert kind == "broken record"
    assert reason.startswith(f"{dump}: Torch.add.0.forward: found {found}")
    assert len(reason) < 500 + len(str(dump))


def test_a_lost_argument_that_cannot_be_told(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    x = tensor(2, 3)
    record = {**forward(x, {}, output=x), "input_kwargs": {"other": [{}]}}
    dump = make_dump(data={"Torch.add.0.forward": record, **GOOD})
    probe(pytester).assert_outcomes(passed=5, skipped=1)
    kind, reason = reasons(pytester, "skip")["Torch.add.0.forward"]
    assert kind == "lost argument"
    start = (
        f"{dump}: Torch.add.0.forward: input_args.1, input_kwargs.other.0: found {{}}, which does not say what "
        "the argument was, expected its value; with the recorded output's dtype in its place: "
    )
    assert reason.startswith(start)


FORBIDDEN = {
    "Torch.load": "torch.load is not among what torch lists as public and overridable",
    "Torch.save": "torch.save is not among what torch lists as public and overridable",
    "Torch.from_file": "torch.from_file is not among what torch lists as public and overridable",
    "Torch.os.system": "torch.os.system is not among what torch lists as public and overridable",
    "Functional.nothing": "torch.nn.functional.nothing is not among what torch lists as public and overridable",
    "os.system": "os is not one of Functional, Tensor, Torch, VF; allow it with probe_namespaces (os=python.module, or "
    "os=torch.ops.os for operators)",
    "this.s": "this is not one of Functional, Tensor, Torch, VF; allow it with probe_namespaces (this=python.module, "
    "or this=torch.ops.this for operators)",
    "Distributed.all_reduce": "communication between ranks cannot be replayed alone",
}


def test_an_api_outside_the_allow_list_is_neither_imported_nor_called(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    word, size = {"type": "str", "value": "made.bin"}, {"type": "int", "value": 4}
    record = forward(word, {"type": "bool", "value": True}, size, output=tensor(4))
    system = forward({"type": "str", "value": "touch made.bin"}, output=None)
    data = {f"{api}.0.forward": system if "system" in api else record for api in FORBIDDEN}
    dump = make_dump(data={**data, **GOOD})
    probe(pytester).assert_outcomes(passed=5, skipped=len(FORBIDDEN))
    assert reasons(pytester, "skip") == {
        f"{api}.0.forward": ("outside the allow-list", f"{dump}: {api}.0.forward: {api}: {message}")
        for api, message in FORBIDDEN.items()
    }
    assert "this" not in sys.modules
    assert not (pytester.path / "made.bin").exists()


class Runs:
    """Its pickle makes a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


TENSOR = saved(torch.ones(2, 3))
NAMES = "it names {}, which a stored tensor does not need"
READ = "which cannot be read ({}), expected a stored tensor"

# Content of a tensor file, and the message about it: FILE stands for its path, FOLDER for the folder.
STORED: dict[str, tuple[bytes | None, str]] = {
    "missing.pt": (None, f"no file 'missing.pt' in FOLDER, {ELSEWHERE}"),
    "missing.npy": (None, f"no file 'missing.npy' in FOLDER, {ELSEWHERE}"),
    "empty.pt": (b"", "FILE, which is empty, expected a stored tensor"),
    "zeros.pt": (
        bytes(len(TENSOR)),
        f"FILE, {READ.format('it is no file of a tensor (File is not a zip file)')}",
    ),
    "truncated.pt": (
        TENSOR[: len(TENSOR) // 2],
        "FILE, " + READ.format("it is no file of a tensor (File is not a zip file)"),
    ),
    "pickle.pt": (pickle.dumps(Runs()), f"FILE, {READ.format(NAMES.format('posix.mkdir'))}"),
    "torch_pickle.pt": (saved(Runs()), f"FILE, {READ.format(NAMES.format('posix.mkdir'))}"),
    "list.pt": (saved([1, 2]), f"FILE, {READ.format('it holds a list, not a tensor')}"),
    "shape.pt": (saved(torch.ones(3, 2)), "shape (3, 2) in FILE, expected shape (2, 3) as recorded"),
    "dtype.pt": (saved(torch.ones(2, 3).double()), "dtype float64 in FILE, expected float32 as recorded"),
    "sparse.pt": (
        saved(torch.ones(2, 3).to_sparse()),
        f"FILE, {READ.format(NAMES.format('torch._utils._rebuild_sparse_tensor'))}",
    ),
    "meta.pt": (
        saved(torch.ones(2, 3, device="meta")),
        f"FILE, {READ.format(NAMES.format('torch._utils._rebuild_meta_tensor_no_storage'))}",
    ),
    "objects.npy": (
        npy(np.array([Runs()], object)),
        f"FILE, {READ.format('it holds Python objects')}",
    ),
    "truncated.npy": (
        npy(np.ones((2, 3), np.float32))[:-1],
        f"FILE, {READ.format('it ends too early')}",
    ),
}


def test_a_tensor_file_that_cannot_be_used(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = pytester.mkdir("dump_tensor_data")
    (folder / "good.pt").write_bytes(TENSOR)
    data, expected = {}, {}
    for number, (name, (content, message)) in enumerate([("good.pt", (None, "")), *STORED.items()]):
        if content is not None:
            (folder / name).write_bytes(content)
        stored = {**tensor(2, 3), "data_name": name}
        data[f"Functional.relu.{number}.forward"] = forward(stored, output=tensor(2, 3))
        found = message.replace("FILE", str(folder / name)).replace("FOLDER", str(folder))
        where = f"{pytester.path}/dump.json: Functional.relu.{number}.forward: input_args.0"
        expected[f"Functional.relu.{number}.forward"] = ("broken record", f"{where}: found {found}; {GENERATED}")
    del expected["Functional.relu.0.forward"]
    make_dump(data=data, task="tensor")
    probe(pytester).assert_outcomes(passed=1, skipped=len(STORED))
    assert reasons(pytester, "skip") == expected
    assert not (pytester.path / "made").exists()
    pytester.runpytest("--probe-dump=dump.json", "--probe-inputs=generated").assert_outcomes(passed=1 + len(STORED))


def test_a_tensor_file_far_too_large(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    path = pytester.mkdir("dump_tensor_data") / "x.pt"
    with path.open("wb") as file:
        file.truncate(2_000_000)
    stored = {**tensor(2, 3), "data_name": "x.pt"}
    dump = make_dump(data={"Functional.gelu.0.forward": forward(stored, output=tensor(2, 3)), **GOOD}, task="tensor")
    probe(pytester).assert_outcomes(passed=5, skipped=1)
    found = f"found a file of 2000000 bytes, {path}, expected at most 1048672 for float32 of shape (2, 3)"
    message = f"{dump}: Functional.gelu.0.forward: input_args.0: {found}"
    assert reasons(pytester, "skip") == {"Functional.gelu.0.forward": ("broken record", message)}


def test_a_dump_of_modules_only_says_what_to_record(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    data = {name: entry for name, entry in entries().items() if name.startswith("Module")}
    dump = make_dump(data=data, level="L0")
    result = probe(pytester)
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.OK
    message = "it holds no API calls, only 1 Module entry; record with level L1 or mix instead of L0"
    assert reasons(pytester, "skip") == {"(empty)": ("no API calls in the dump", f"{dump}: {message}")}


def test_a_dump_of_an_unsupported_framework_fails_with_a_reason(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    dump = make_dump(framework="jax")
    probe(pytester).assert_outcomes(failed=1)
    message = f"{dump}: it was recorded with jax, whose calls cannot run yet; give a dump of pytorch, mindspore, paddle"
    assert reasons(pytester, "error") == {"(framework)": ("", message)}


def test_a_missing_framework_fails_and_says_how_to_install_it(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    monkeypatch.setitem(pytest_probe.frameworks.MODULES, "pytorch", "no_such_torch")
    result = probe(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its calls need no_such_torch, which is not installed: pip install *"])


@pytest.mark.parametrize("stack", [None, b"", b"{", b"[]", b'{"Functional.relu.0.forward": 7}', b"\0\1\2"])
def test_a_stack_that_cannot_be_used_is_left_out(
    pytester: pytest.Pytester, make_dump: DumpMaker, stack: bytes | None
) -> None:
    file = make_dump(data=GOOD).with_name("stack.json")
    file.unlink()
    if stack is not None:
        file.write_bytes(stack)
    result = probe(pytester, "-v")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["dump.json::Functional.relu.0.forward PASSED*"])


def test_nothing_is_written_beside_a_dump(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = make_dump("given/dump.json", GOOD).parent
    folder.chmod(0o555)
    try:
        probe(pytester, dump="given").assert_outcomes(passed=5)
    finally:
        folder.chmod(0o755)
    assert sorted(path.name for path in folder.iterdir()) == ["dump.json", "stack.json"]


def test_a_dump_with_a_byte_order_mark_is_read(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    dump = make_dump(data=GOOD)
    dump.write_text(dump.read_text(), encoding="utf-8-sig")
    probe(pytester).assert_outcomes(passed=5)


def test_a_dump_given_twice_runs_once(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("given/dump.json", GOOD)
    result = probe(pytester, "--probe-dump=./given/../given/dump.json", "--probe-dump=given", dump="given/dump.json")
    result.assert_outcomes(passed=5)


def test_a_dump_that_does_not_exist(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    good = make_dump(data=GOOD)
    result = probe(pytester, f"--probe-dump={good}", dump="gone.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    path = str(pytester.path / "gone.json")
    assert f"ERROR: --probe-dump: {path!r} cannot be used; there is no such file or folder" in result.errlines


def test_named_tensors_are_one_skip(pytester: pytest.Pytester) -> None:
    path, x = pytester.path / "step0.safetensors", np.ones(2, np.float32)
    path.write_bytes(safetensors(**dict.fromkeys(("m.output", "m.input", "n"), x)))
    result = probe(pytester, dump=path.name)
    result.assert_outcomes(skipped=1)
    held = "2 entries of named tensors: compared and not replayed"
    result.stdout.fnmatch_lines([f"probe: {path.name}: 0 records (pytorch, tensor, named tensors); no items: {held}"])
    kind, reason = reasons(pytester, "skip")["(empty)"]
    assert kind == "no API calls in the dump"
    assert reason.startswith(f"{path}: it holds no API calls, only {held}; ")


def test_damaged_named_tensors_fail(pytester: pytest.Pytester) -> None:
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    path = pytester.path / "step0.safetensors"
    path.write_bytes(with_header({"a": good, "b": good | {"dtype": "F3"}}, bytes(8)))
    probe(pytester, dump=path.name).assert_outcomes(failed=1)
    _, reason = reasons(pytester, "error")["(damaged)"]
    assert reason.startswith(f"{path}: b: the dtype F3, expected one of BOOL, ")
    assert reason.endswith("; tensors kept: 1")
