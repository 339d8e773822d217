"""What one room knows stands in no other: a framework's words in frameworks/ and in its folder of capture/, names of
APIs in the tables that list them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import pytest_probe
from pytest_probe.inputs.role_table import ROLES
from pytest_probe.standards.tables import names

ROOT = Path(pytest_probe.__file__).parent
MODULES = [
    path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] not in ("frameworks", "references")
    and path.relative_to(ROOT).parts[:2] not in (("capture", "torch"), ("capture", "paddle"), ("capture", "mindspore"))
    and path.name not in ("role_table.py", "role_rules.py")
]
APIS = names() | ROLES.keys()
# Words that mean something else in every module: kinds of numbers, and the host, which all frameworks call so.
EVERYWHERE = frozenset("bfloat16 bool complex cpu float int".split())
# Words that mean something else in a module, by what they mean there.
EXCEPTIONS: Mapping[str, Mapping[str, str]] = {
    "features/gate/baseline.py": {"a setting": "repeat"},
    "standards/quantisers/scales.py": {"names of rules": "floor ceil"},
    "capture/cli.py": {"a value of an option": "all"},
    "cli/record.py": {"fields of what is shown": "stack type"},
    "cli/show.py": {"a heading": "size"},
    "model/device_modes.py": {"directions of rounding, scopes and sums of a mode": "all matmul narrow zero"},
    "model/card.py": {"a heading": "index"},
    "model/result.py": {"a method of NumPy's": "item"},
    "check/alternatives.py": {"sums of a mode": "narrow"},
    "check/reference_device.py": {"a class": "random"},
    "check/device_call.py": {"a class": "random"},
    "features/unique.py": {"fields of a tensor in a dump": "max min"},
    "features/fuzz/findings.py": {"words of a dump": "data type"},
    "check/judging.py": {"a class": "random", "an English word": "empty", "a metric": "mode"},
    "check/large/sampler.py": {"an English word": "any"},
    "check/large/contractions.py": {
        "kinds of contractions, of classes.yaml": "affine einsum linear matmul",
        "an index": "sum",
    },
    "check/notebook.py": {"a value of an argument": "any", "a field of a request": "repeat"},
    "check/overflow_by_statistics.py": {"a kind of overflows": "normal"},
    "check/run_kinds.py": {"a name that inputs are drawn by": "narrow"},
    "check/prepare.py": {"a class": "random"},
    "check/reference.py": {"a class": "random"},
    "check/user_code.py": {"a method of a device": "put"},
    "inputs/fills.py": {"what tensors are filled with": "ones zeros"},
    "features/fuzz/drawn.py": {"a layout": "contiguous"},
    "features/fuzz/from_records.py": {"a word of the table": "dim"},
    "features/asserts/measured.py": {
        "an answer": "equal",
        "whose functions are replaced, and what its tensors have": "detach torch",
    },
    "features/asserts/plugin.py": {"a value of an option": "all"},
    "features/asserts/explain.py": {"a cast": "to"},
    "features/fuzz/strategy.py": {"a layout": "contiguous"},
    "features/fuzz/templates.py": {"a word of the table": "dim"},
    "system/machine.py": {"a file of a control group": "max"},
    "inputs/roles.py": {"all axes": "all"},
    "inputs/memory.py": {"a layout": "contiguous"},
    "numerics/one_pass_totals.py": {"where an eps is added": "all"},
    "numerics/conventions.py": {"where an eps is added": "all zeros"},
    "numerics/rounding_signature.py": {"an English word": "tile"},
    "plugin/items.py": {"a style of pytest's tracebacks": "short"},
    "option_types.py": {"a value of an option": "all"},
    "options.py": {
        "options, and sections of them": "mode repeat scale select",
        "a value of an option": "all",
        "functions, in a help": "torch",
    },
    "plugin/checks.py": {"values of arguments": "any contiguous ones zeros"},
    "plugin/item_hooks.py": {"a section of a report": "log"},
    "plugin/item_verdict.py": {"a value of an option": "all"},
    "plugin/session.py": {"a value of an option": "all"},
    "plugin/tensors.py": {"as a program spells a dtype": "torch", "an argument": "fill"},
    "plugin/xdist.py": {"an option of pytest-xdist": "dist"},
    "capture/tracer.py": {"a value of a setting": "random"},
    "capture/program.py": {"a command that works, in a message": "torch"},
    "capture/apex_files.py": {"parts of PaddleAPEX's files, and a field of them": "all half type"},
    "capture/framework.py": {"a framework, in a message": "torch"},
    "capture/profiling/report.py": {"a field of Chrome's traces": "cat", "an English word": "all"},
    "capture/profiling/stopwatch.py": {"an English word": "trace"},
    "capture/arguments.py": {"values of settings": "all fix"},
    "capture/config.py": {"a value of a setting": "all", "a kind of checksum": "xor"},
    "capture/statistics.py": {"a field of a dump": "type"},
    "capture/dump_files.py": {"a field of a dump": "data"},
    "capture/estimate.py": {"a field of a dump": "data"},
    "features/online/received.py": {"a field of a dump": "data"},
    "capture/snapshot.py": {
        "a type, and the field of types, as a dump has them": "range type",
        "statistics, fields and types, as a dump has them": "max mean min norm torch type",
    },
    "numerics/regions.py": {"English words": "dim index"},
    "features/html/page.py": {"settings": "mode repeat"},
    "features/markdown.py": {"an English word": "item"},
    "features/cluster/shard.py": {"an English word": "item"},
    "reports/junit.py": {"a property": "where"},
    "records/api_accuracy_checker.py": {
        "types, the framework and a file, as a dump has them": "stack torch",
    },
    "inputs/build.py": {"marks in torch's files": "conj neg"},
    "system/tensor_files/base.py": {"marks in torch's files": "conj neg"},
    "system/tensor_files/torch_zip.py": {"a module, as a pickle has it": "torch"},
    "records/fields.py": {"the framework and types, as a dump has them": "range torch type"},
    "records/msprobe/__init__.py": {"fields and the framework, as a dump has them": "data torch"},
    "records/msprobe/call_sites.py": {"folders of tools and frameworks": "torch"},
    "records/msprobe/entries.py": {"types and fields, as a dump has them": "mode torch type zeros"},
    "records/read.py": {"a function that wrote a file": "torch"},
    "records/named_tensors.py": {"a reader": "torch"},
    "records/paddleapex.py": {"an API of Paddle's": "to", "a field of a dump": "type"},
    "records/ptdbg/__init__.py": {"prefixes of names, and the framework, as a dump has them": "torch"},
    "records/ptdbg/lines.py": {"a name, as a dump has it": "torch"},
    "features/against/compare.py": {"a class": "random", "what a pair is": "equal"},
    "check/difference_names.py": {"a metric": "mode"},
    "features/against/dump_map.py": {"rules of a map": "concat split to"},
    "features/against/judging.py": {"what a pair is": "equal random"},
    "features/against/report.py": {"what a pair is": "equal random"},
    "features/against/sides.py": {"statistics": "max mean min norm"},
    "export/two_dumps.py": {
        "statistics, and the framework, as ptdbg's advice names it": "max mean min torch",
        "APIs that ptdbg's advice knows": "batch_norm conv2d conv3d layer_norm lstm matmul nll_loss",
    },
    "features/against/standards.py": {"whose tolerances they are, and a prefix of dtypes": "torch"},
    "features/relations/checks.py": {"a class": "random"},
    "features/relations/layouts.py": {"a layout": "contiguous"},
    "features/self_check/training.py": {"a value of a setting": "fix"},
    "features/against_call.py": {"a class, and what a pair is": "equal random"},
    "model/pairing.py": {"what a pair is": "equal random"},
    "export/three_party.py": {"a class": "random"},
    "export/compare_outputs.py": {"dtypes, as tools' files have them": "torch"},
    "export/details.py": {"dtypes, as msprobe's files have them": "torch"},
    "export/files.py": {"a setting": "mode"},
    "reports/tally.py": {"a kind of overflows": "normal"},
    "reports/terminal.py": {"English words": "all index item median take"},
    "standards/auto.py": {"a class": "random"},
    "standards/noise/explanation.py": {"values of an argument": "amax amin max min"},
    "standards/tables/__init__.py": {"a class": "random"},
    "check/pair_metrics.py": {"a class": "random", "a metric": "mode"},
    "standards/classes/distributions.py": {
        "distributions": "bernoulli cauchy exponential geometric log_normal multinomial normal poisson uniform",
        "parameters": "mean median std to",
        "an English word": "ones",
    },
    "standards/classes/factorisation.py": {"which formula makes a matrix of the factors": "eig eigh eigvals qr svd"},
    "standards/classes/indexed_writes.py": {"parameters": "dim index"},
    "standards/classes/random.py": {"classes": "dropout random"},
    "standards/classes/selected_indices.py": {"a parameter": "dim"},
    "standards/classes/nearest_resize.py": {"a parameter": "mode"},
    "standards/classes/tied_gradients.py": {"a parameter": "dim"},
    "standards/exact.py": {"a class": "random"},
    "standards/device_modes/allowed.py": {"a metric": "mode"},
    "standards/diagnosis/arguments.py": {"a value of an argument": "tanh"},
    "standards/diagnosis/__init__.py": {"a class": "random"},
    "standards/diagnosis/terms.py": {"an English word": "all"},
    "standards/diagnosis/ranges.py": {"a family of causes": "range", "an English word": "zeros"},
    "standards/diagnosis/failed_output.py": {"a family of causes": "range"},
    "standards/finite.py": {"a kind of overflows": "normal", "a class": "random"},
    "standards/tools/tool.py": {
        "a class": "random",
        "an API that tools treat apart": "dropout",
        "an English word": "less",
    },
    "standards/tools/release.py": {"a limit": "mean"},
    "standards/tools/table.py": {"a limit": "mean"},
    "strategies.py": {"a function of one tensor of any shape, and a dtype's name": "clone torch"},
}


def words(module: str) -> frozenset[str]:
    """The words of a module's strings, docstrings aside, that are names of APIs, or "torch"."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    docstrings = {id(statement.value) for statement in _first_statements(tree) if isinstance(statement, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return frozenset(word for node in strings if isinstance(node.value, str) for word in _known(node.value))


def _first_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from node.body[:1]


def _known(text: str) -> Iterator[str]:
    """The API that a string names, "conv2d" or "Functional.conv2d"; and "torch" where it speaks of that."""
    name = text.rpartition(".")[2]
    if name in APIS and re.fullmatch(r"\w+(\.\w+)*", text):
        yield name
    if "torch" in text.lower():
        yield "torch"


def test_strings_are_found() -> None:
    found = {
        text: set(_known(text)) for text in ("conv2d", "Functional.conv2d", "a conv2d", "PyTorch", "torch.add", "x")
    }
    assert found == {
        "conv2d": {"conv2d"},
        "Functional.conv2d": {"conv2d"},
        "a conv2d": set(),
        "PyTorch": {"torch"},
        "torch.add": {"torch", "add"},
        "x": set(),
    }
    assert {"linear", "einsum"} <= words("check/large/contractions.py")


@pytest.mark.parametrize("module", MODULES)
def test_no_room_but_theirs_knows_apis_and_the_framework(module: str) -> None:
    known = {word for group in EXCEPTIONS.get(module, {}).values() for word in group.split()}
    assert words(module) - EVERYWHERE == known


def test_exceptions_are_of_modules() -> None:
    assert EXCEPTIONS.keys() - set(MODULES) == set()
