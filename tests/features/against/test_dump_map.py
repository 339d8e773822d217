"""What a map says, and what is wrong with one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.features.against.dump_map import Fusion, Layout, read_map


def written(folder: Path, text: str) -> Path:
    path = folder / "map.yaml"
    path.write_text(text)
    return path


def test_all_rules(tmp_path: Path) -> None:
    found = read_map(
        written(
            tmp_path,
            """
names:
  "layers.*.attention": "blocks.*.attn"
concat:
  - {from: [q, k], to: qk}
split:
  - {from: gate_up, to: [gate, up]}
ignore: ["*.dropout.*"]
dims:
  "Functional.linear.3.*": "b s h[tp]"
  "*.sum.*": partial
  "*": auto
""",
        )
    )
    assert found.renamed("Module.layers.12.attention.Attn.0") == "Module.blocks.12.attn.Attn.0"
    assert found.renamed("Module.layers.x.y.attention.0") == "Module.layers.x.y.attention.0"
    assert found.fusions == (Fusion(("q", "k"), "qk", of_a=True), Fusion(("gate", "up"), "gate_up", of_a=False))
    assert found.ignores("Functional.dropout.0")
    assert found.layout_of("Functional.linear.3.forward") == Layout(dim=2)
    assert found.layout_of("Torch.sum.0.forward") == Layout(partial=True)
    assert found.layout_of("Torch.exp.0.forward") == Layout()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: {}", "map.yaml:1: unknown key 'name'; did you mean 'names'?"),
        ("\nconcat:\n  - {from: [q], to: qk}", "map.yaml:3: concat: from: ['q'] cannot be used; give a list of two"),
        ("split:\n  - {from: a, two: [b, c]}", "map.yaml:2: split: unknown key 'two'"),
        ("dims:\n  a: 'b s['", "map.yaml:2: dims: a: 'b s[' cannot be used; give \"auto\""),
        ("dims:\n  a: 'b[x] s[y]'", "map.yaml:2"),
        ("- 1", "give a mapping"),
        ("a: [", "it is not YAML or JSON"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_map(written(tmp_path, text))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("glob", "other", "name", "renamed"),
    [
        ("layers.**.*", "blocks.**.*", "Module.layers.12.attn.0", "Module.blocks.12.attn.0"),
        ("h*_*", "layers.*.*", "h0_attn_w.bias", "layers.0.attn_w.bias"),
        ("a*b", "*", "aXbYb.c", "XbY.c"),
        ("*.0*1", "*.*", "x.0001", "x.00"),
        ("*" + "a*" * 30 + "b", "c", "a" * 40, "a" * 40),
        ("*" + "a*" * 30, "c", "a" * 40, "c"),
    ],
)
def test_stars(tmp_path: Path, glob: str, other: str, name: str, renamed: str) -> None:
    began = time.process_time()
    assert read_map(written(tmp_path, f'names: {{"{glob}": "{other}"}}')).renamed(name) == renamed
    assert time.process_time() - began < 5
