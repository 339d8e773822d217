"""Which mutants of the package's source the nearest tests find: `python benchmarks/mutants.py [--tests CHECKOUT]`.

A mutant is one change of one module: a comparison turned, a number changed, `and` and `or` exchanged, `not` dropped, a
statement dropped, an arithmetic operator exchanged, a result changed. The draw depends on the package and the seed
alone: with --tests the tests of another checkout get the same mutants. Each mutant runs in a fork of this process,
which has imported torch and pytest: it costs the time of the tests, the cheapest file first, until one fails. mutmut
changes functions alone and runs all tests before it begins; cosmic-ray starts a process for each mutant.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch._dynamo  # noqa: F401

ROOT = Path(__file__).parent.parent
MEMORY = 16 << 30
NEGATED = {"Lt": "GtE", "GtE": "Lt", "Gt": "LtE", "LtE": "Gt", "Eq": "NotEq", "In": "NotIn", "Is": "IsNot"}
OPERATORS = {
    "comparison": {**NEGATED, **{new: old for old, new in NEGATED.items()}},
    "border": {"Lt": "LtE", "LtE": "Lt", "Gt": "GtE", "GtE": "Gt"},
    "and/or": {"And": "Or", "Or": "And"},
    "arithmetic": {"Add": "Sub", "Sub": "Add", "Mult": "Div", "Div": "Mult", "FloorDiv": "Mult", "Mod": "Mult"},
}
DROPPED = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


class Site(NamedTuple):
    """Where `new` comes: into a list, or into a field of a node."""

    line: int
    kind: str
    what: str
    holder: Any
    key: Any
    new: Any

    def change(self) -> None:
        self.holder[self.key] = self.new  # of an object its `vars`


def _nodes(node: ast.AST) -> Iterator[Any]:
    """This node and those below it, without annotations, decorators, `__all__` and the text of messages."""
    named = vars(node).get("test"), vars(node).get("annotation"), *vars(node).get("targets", ())
    if isinstance(node, (ast.JoinedStr, ast.arg)) or {"TYPE_CHECKING", "TypeAlias", "__all__"} & {
        each.id for each in named if isinstance(each, ast.Name)
    }:
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list") and (field, type(node)) != (
            "keywords",
            ast.ClassDef,
        ):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _nodes(each)


def _droppable(node: ast.stmt) -> bool:
    """Also what is given to a name or a place of an object; without a local name the rest could not run."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    return isinstance(node, DROPPED) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))


def _changes(node: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Kind, holder, key and new value of the mutants of one node."""
    if isinstance(node, (ast.Compare, ast.BoolOp, ast.BinOp)):
        holder: Any
        key: Any
        holder, key = (node.ops, 0) if isinstance(node, ast.Compare) else (vars(node), "op")
        old = type(holder[key]).__name__
        yield from ((kind, holder, key, getattr(ast, new[old])()) for kind, new in OPERATORS.items() if old in new)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", vars(node), "operand", ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield "constant", vars(node), "value", not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "result", vars(node), "value", ast.Constant(None)
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        for place, each in enumerate(statements if isinstance(statements, list) else ()):
            if _droppable(each):
                yield "statement", statements, place, ast.Pass()


def sites(source: str) -> tuple[ast.Module, list[Site]]:
    tree = ast.parse(source)
    return tree, [
        Site(at.lineno, kind, ast.unparse(at), holder, key, new)
        for node in _nodes(tree)
        for kind, holder, key, new in _changes(node)
        for at in [holder[key] if kind == "statement" else node]
    ]


def _rank(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


def drawn(modules: int, mutants: int, seed: int) -> Iterator[tuple[str, list[tuple[int, Site]]]]:
    """Modules, each with drawn sites of it and their numbers: other kinds first. A change elsewhere moves no draw."""
    names = [str(path.relative_to(ROOT)) for path in (ROOT / "pytest_probe").rglob("*.py")]
    for name in sorted(names, key=lambda name: _rank(seed, name)):
        if not modules:
            return
        found = sites((ROOT / name).read_text())[1]
        kinds: dict[str, list[tuple[int, Site]]] = defaultdict(list)
        for numbered in sorted(enumerate(found), key=lambda each: _rank(seed, name, each[1].kind, each[1].what)):
            kinds[numbered[1].kind].append(numbered)
        turns = [(turn, each) for of_kind in kinds.values() for turn, each in enumerate(of_kind)]
        if len(found) >= mutants:
            yield name, [each for _, each in sorted(turns, key=lambda turn: turn[0])[:mutants]]
            modules -= 1


def nearest(checkout: Path, module: str) -> list[str]:
    """Test files that name the module, and those of the folder that mirrors the module's own."""
    place = Path(module.removesuffix("/__init__.py")).with_suffix("")
    above, last = ".".join(place.parts[:-1]), place.name
    named = re.compile(rf"\b{re.escape(above)}\.{last}\b|from {re.escape(above)} import (\([^)]*|.*)\b{last}\b")
    folder = checkout / "tests" / Path(*place.parts[1:-1])
    while not list(folder.glob("test_*.py")):
        folder = folder.parent
    found = {*folder.glob("test_*.py"), *(folder / last).glob("test_*.py")}
    found |= {path for path in (checkout / "tests").rglob("test_*.py") if named.search(path.read_text())}
    return sorted(str(path.relative_to(checkout)) for path in found if "without_torch" not in path.parts)


class Outcome:
    """What a run of tests reports: pytest calls it."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0
        self.costs: dict[str, float] = defaultdict(float)
        self.used = sum(os.times()[:4])
        self.ended = "an end of the process"
        self.seconds = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before, self.used = self.used, sum(os.times()[:4])
        self.costs[report.nodeid.partition("::")[0]] += self.used - before
        self.passed += report.passed and report.when == "call"
        self.failed += [report.nodeid] * report.failed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.failed += [report.nodeid] * report.failed

    @property
    def found(self) -> str:
        return self.failed[0] if self.failed else "" if self.ended in ("0", "5") else self.ended


def _in_fork(copy: Path, args: list[str], limit: float, report: Path) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
    with open(os.devnull, "r+") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)
    outcome = Outcome()
    outcome.ended = str(int(pytest.main(["-q", "--tenth", f"--basetemp={copy}.tmp", *args], [outcome])))
    report.write_text(json.dumps(vars(outcome)))


def run(copy: Path, args: list[str], limit: float) -> Outcome:
    """These tests in a fork that may take so many seconds of CPU, and on a loaded machine many more of the clock."""
    outcome, report = Outcome(), Path(f"{copy}.json")
    report.unlink(missing_ok=True)
    number = os.fork()
    if not number:
        try:
            _in_fork(copy, args, limit, report)
        finally:
            os._exit(0)
    end = time.monotonic() + 20 * limit
    while not (ended := os.wait4(number, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.02)
    if not ended[0]:
        os.killpg(number, signal.SIGKILL)
        ended = os.wait4(number, 0)
    if report.exists():
        vars(outcome).update(json.loads(report.read_text()))
    elif os.waitstatus_to_exitcode(ended[1]) in (-signal.SIGKILL, -signal.SIGXCPU):
        outcome.ended = "the time limit"
    outcome.seconds = ended[2].ru_utime + ended[2].ru_stime
    return outcome


def write(path: Path, tree: ast.Module) -> None:
    """Bytecode of the same second and size would be taken for that of the new source."""
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        cached.unlink()


def copied(tests: Path, copy: Path) -> Path:
    """The tests of a checkout with this package, as `ast.unparse` writes it: mutants differ in nothing else."""
    shutil.copytree(tests, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "pytest_probe"))
    shutil.copytree(ROOT / "pytest_probe", copy / "pytest_probe", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (copy / "pytest_probe").rglob("*.py"):
        write(path, ast.parse(path.read_text()))
    return copy


class Suite:
    """The nearest tests of a module, the cheapest first, as many as fit into `limit` seconds of CPU."""

    def __init__(self, copy: Path, limit: float) -> None:
        self._copy = copy
        self._limit = limit
        self._costs: dict[str, float] = {}
        self._failing: set[str] = set()

    def _measure(self, files: list[str]) -> Outcome:
        outcome = run(self._copy, files, 900)
        self._costs.update(dict.fromkeys(files, 0.0) | outcome.costs)
        self._failing.update(outcome.failed)
        return outcome

    def chosen(self, module: str) -> tuple[list[str], Outcome]:
        """The arguments of pytest and what they give without a mutant: what fails then is left out."""
        found = nearest(self._copy, module)
        if new := [file for file in found if file not in self._costs]:
            self._measure(new)
        found = [file for file in found if file not in self._failing]
        files: list[str] = []
        for file in sorted(found, key=lambda file: (self._costs[file], file)):
            if not files or sum(self._costs[each] for each in [*files, file]) <= self._limit:
                files.append(file)
        outcome = self._measure(files) if files else Outcome()  # without files pytest runs all
        return [*files, *(f"--deselect={each}" for each in sorted(self._failing))], outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", type=Path, default=ROOT, metavar="CHECKOUT", help="whose tests run")
    for option, default in (("--modules", 30), ("--mutants", 4), ("--seed", 0), ("--limit", 15)):
        parser.add_argument(option, type=int, default=default)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        copy = copied(args.tests.resolve(), Path(folder) / "c")
        suite = Suite(copy, args.limit)
        for module, mutants in drawn(args.modules, args.mutants, args.seed):
            tests, plain = suite.chosen(module)
            print(f"{module}: {plain.passed} tests, {plain.seconds:.1f} s", flush=True)
            source = (copy / module).read_text()
            for number, site in mutants if plain.passed else ():
                tree, found = sites(source)
                found[number].change()
                write(copy / module, tree)
                outcome = run(copy, ["-x", *tests], 2 * plain.seconds + 20)
                counts["found" if outcome.found else "survived"] += 1
                print(f"  {site.line} {site.kind}: {site.what!r:.80}", end=" ")
                print(f"{outcome.found or 'SURVIVED'}, {outcome.seconds:.1f} s", flush=True)
            write(copy / module, ast.parse(source))
            counts["without a test"] += 0 if plain.passed else len(mutants)
    print(f"{dict(counts)} of {sum(counts.values())}")


if __name__ == "__main__":
    main()
