from __future__ import annotations

from pathlib import Path

from tests.export.test_checker import details, outcome, output, results, written

FAR = {"cosine_distance": 0.5, "max_abs_error": 0.25, "max_rel_error": 1.5}
NEAR = {"cosine_distance": 0.0, "max_abs_error": 0.0, "max_rel_error": 0.0}
COSINE, LARGEST = (
    "cosine similarity is less than threshold: 0.99 ",
    "max absolute difference is greater than threshold: 0.001 ",
)


def test_rows_messages_and_apis(tmp_path: Path) -> None:
    mindspore = {"standard": "mindspore"}
    added = {"api": "Mint.add", **mindspore}
    written(
        tmp_path,
        outcome("Mint.add.0.forward", "error", output(measures=FAR, verdict="error"), **added),
        outcome("Mint.add.0.backward", "pass", output(measures=NEAR, dtype="bfloat16", shape=[3]), **added),
        outcome("Tensor.__add__.0.forward", "pass", output(measures=NEAR), api="Tensor.__add__", **mindspore),
        outcome("Tensor.max.0.forward", "skip", api="Tensor.max", **mindspore),
    )
    header = "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message"
    far = ["Float32", "Float32", "(2, 3)", "0.5", "0.25", "1.5", "error", COSINE + LARGEST]
    near = ["BFloat16", "BFloat16", "(3,)", "1.0", "0.0", "0.0", "pass", ""]
    assert details(tmp_path) == [
        header.split(","), ["Mint.add.0.forward.output.0", *far], ["Mint.add.0.backward.output.0", *near]
    ]  # fmt: skip
    assert results(tmp_path) == [
        ["API Name", "Forward Test Success", "Backward Test Success", "Message"],
        ["Mint.add.0", "error", "pass", COSINE + LARGEST],
        ["Tensor.max.0", "SKIP", "", "why"],
    ]


def test_what_has_no_metrics_is_said(tmp_path: Path) -> None:
    given = {"api": "Tensor.item", "standard": "mindspore"}
    written(tmp_path, outcome("Tensor.item.0.forward", "error", output(verdict="error", shape=[]), **given))
    (_, row) = details(tmp_path)
    assert row[4:] == [
        *("", "", "", "error"),
        "two inputs are not valid for computing cosine similarity, skip comparing "
        "two inputs are not valid for computing max absolute difference, skip comparing ",
    ]
