"""How large and how dense the package is: `python benchmarks/structure.py [FOLDER...]`, a folder a column.

They show a direction and are no limits. Public names are top-level functions, classes and constants, and methods,
without a leading underscore; comments are lines that begin with #.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FRAMEWORKS = ("torch", "pytorch")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def public_names(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
        if isinstance(node, ast.ClassDef):
            found += [item.name for item in node.body if isinstance(item, FUNCTIONS)]
    return [name for name in found if not name.startswith("_")]


def fields(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield sum(isinstance(item, ast.AnnAssign) for item in node.body), node.name


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def knows_a_framework(tree: ast.Module) -> bool:
    """Does a string of the module name a framework, beside its imports and documentation?"""
    return any(isinstance(node, ast.Constant) and node.value in FRAMEWORKS for node in ast.walk(tree))


def figures(folder: Path) -> dict[str, str]:
    package = folder / "pytest_probe"
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    lengths = [text.count("\n") for text in sources.values()]
    total = sum(lengths)
    all_functions = [function for tree in trees.values() for function in functions(tree)]
    sizes = [function.end_lineno - function.lineno + 1 for function in all_functions if function.end_lineno]
    names = sum(len(public_names(tree)) for tree in trees.values())
    comments = sum(line.lstrip().startswith("#") for text in sources.values() for line in text.splitlines())
    largest, owner = max(item for tree in trees.values() for item in fields(tree))
    outside = [path for path, tree in trees.items() if "frameworks" not in path.parts and knows_a_framework(tree)]
    return {
        "files": f"{len(sources):,}",
        "lines": f"{total:,}",
        "lines a file, median and largest": f"{median(lengths):.0f}, {max(lengths):,}",
        "lines a function, median and largest": f"{median(sizes):.0f}, {max(sizes):,}",
        "parameters a function, mean and largest": f"{sum(map(parameters, all_functions)) / len(all_functions):.2f}, "
        f"{max(map(parameters, all_functions))}",
        "public names in 1,000 lines": f"{1000 * names / total:.0f}",
        "comments in 100 lines": f"{100 * comments / total:.1f}",
        "largest data object": f"{largest} fields ({owner})",
        "files outside frameworks/ that name a framework": f"{len(outside)}",
    }


def main() -> None:
    columns = [figures(Path(folder)) for folder in sys.argv[1:] or [str(ROOT)]]
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


if __name__ == "__main__":
    main()
