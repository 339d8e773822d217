"""Dumps of each format as text: four calls with one tensor each, for what all readers promise."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

SHAPE, HIGH, LOW = "[2, 3]", "2.5", "-1.5"
_CONSTANT = ', "stop_gradient": true'


def _tensor(kind: str, dtype: str, more: str = "") -> str:
    return f'{{"type": "{kind}.Tensor", "dtype": "{dtype}", "shape": {SHAPE}, "Max": {HIGH}, "Min": {LOW}{more}}}'


def _msprobe(framework: str) -> str:
    return f'{{"task": "statistics", "level": "L1", "framework": "{framework}", "dump_data_dir": null, "data": {{\n'


class Format(Struct, frozen=True):
    """A file of records between a head and a tail; # is the number of a record."""

    file: str
    head: str
    tail: str
    record: str
    call: str
    # Where a wrong size of the tensor is.
    field: str
    framework: str = "pytorch"
    separator: str = ",\n"

    @property
    def is_json(self) -> bool:
        return self.head != ""

    def records(self) -> list[str]:
        return [self.record.replace("#", str(number)) for number in range(1, 5)]

    def text(self, records: list[str]) -> str:
        return self.head + self.separator.join(records) + self.tail

    def write(self, folder: Path, records: list[str] | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file
        path.write_text(self.text(self.records() if records is None else records), encoding="utf-8")
        return path


FORMATS = {
    "msprobe": Format(
        *("dump.json", _msprobe("pytorch"), "}}"),
        f'"Torch.add.#.forward": {{"input_args": [{_tensor("torch", "torch.float32")}], "output": []}}',
        *("Torch.add.#", "input_args.0.shape.1: found -3"),
    ),
    "mindspore": Format(
        *("dump.json", _msprobe("mindspore"), "}}"),
        f'"Mint.add.#.forward": {{"input_args": [{_tensor("mindspore", "Float32")}], "output": []}}',
        *("Mint.add.#", "input_args.0.shape.1: found -3", "mindspore"),
    ),
    "api_accuracy_checker": Format(
        *("forward_info_0.json", "{\n", "}"),
        f'"Torch*add*#": {{"args": [{_tensor("torch", "torch.float32")}], "kwargs": {{}}}}',
        *("Torch.add.#", "args.0.shape.1: found -3"),
    ),
    "paddleapex": Format(
        *("forward_rank0_all.json", "{\n", "}"),
        f'"paddle.add*#": {{"args": [{_tensor("paddle", "FLOAT32", _CONSTANT)}], "kwargs": {{}}}}',
        *("paddle.add.#", "args.0.shape.1: found -3", "paddle"),
    ),
    "ptdbg": Format(
        *("dump.pkl", "", "\n"),
        f'["Torch_add_#_forward_input.0", 0, [], "torch.float32", {SHAPE}, [{HIGH}, {LOW}, 0.5]]',
        *("Torch.add.#", "line 2, Torch_add_2_forward_input.0.shape.1: found -3", "pytorch", "\n"),
    ),
    "lines of Paddle": Format(
        *("lines.txt", "", "\n"),
        f'paddle.add(Tensor({SHAPE},"float32"), 1, )',
        *("paddle.add.#", "line 2, column 12: found the shape [2, -3]", "paddle", "\n"),
    ),
}
JSON = [name for name, each in FORMATS.items() if each.is_json]
