"""Small programs, and what each prints, warns of and ends with: as it is, and while it is recorded.

`python -m tests.support.left_alone plain|recorded FOLDER` runs all of them in one process and prints that as JSON.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

from pytest_probe.capture.cli import execute
from pytest_probe.capture.program import MainCapture, logging_apart

SUBCLASS = """
class Counted(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counted.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})

def counted(*shape):
    return torch.ones(*shape).as_subclass(Counted)
"""
WRAPPER = """
class Wrapper:
    def __init__(self, value):
        self.value, self.seen = value, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        inner = [each.value if isinstance(each, Wrapper) else each for each in args]
        return func(*inner, **(kwargs or {}))
"""
FUNCTION = """
class Raises(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        raise KeyError("backward")

"""
COUNTS = {
    "linear": "torch.nn.Linear(4, 2)(counted(3, 4))",
    "operator": "counted(3) + counted(3)",
    "reflected": "2.0 - counted(3)",
    "in place": "counted(3).add_(1)",
    "index": "counted(3, 4)[1, :2]",
    "assigned": "x = counted(3); x[0] = 2.0",
    "several outputs": "torch.max(counted(3, 4), 1)",
    "function in Python": "torch.nn.functional.softmax(counted(3), -1)",
    "cat": "torch.cat([counted(3), torch.ones(3)])",
    "out": "torch.add(torch.ones(3), 1, out=torch.ones(3).as_subclass(Counted))",
    "shape": "counted(3).shape, counted(3).dtype, counted(3).requires_grad",
    "item": "counted(1).item()",
    "backward": "x = counted(3).requires_grad_(); x.exp().sum().backward()",
    "module": "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4))(counted(3, 4))",
}
WARNINGS = {
    "deprecated default": "torch.nn.functional.softmax(torch.ones(3))",
    "twice on one line": "for _ in range(2): torch.nn.functional.softmax(torch.ones(3))",
    "on two lines": "torch.nn.functional.softmax(torch.ones(3))\ntorch.nn.functional.log_softmax(torch.ones(3))",
    "of a kernel": "torch.var(torch.ones(1), 0)",
    "of a function": "def f():\n    torch.std(torch.ones(1), 0)\nf(); f()",
    "of a copy": "torch.tensor(torch.ones(3))",
    "of the program": "warnings.warn('mine', stacklevel=1)",
    "of a caller": "def f():\n    warnings.warn('mine', stacklevel=2)\nf(); f()",
}
ENDINGS = {
    "well": "torch.ones(3).exp()",
    "status 3": "torch.ones(3).exp(); sys.exit(3)",
    "message": "sys.exit('the end')",
    "exception": "def f():\n    raise KeyError('x')\nf()",
    "exception of torch": "torch.ones(3) @ torch.ones(4)",
    "exception below a function of torch's": "torch.nn.functional.linear(torch.ones(3), torch.ones(4, 5))",
    "exception of a module": "torch.nn.Linear(3, 4)(torch.ones(5))",
    "exception while another is handled": "try:\n    torch.ones(3) @ torch.ones(4)\nexcept RuntimeError:\n    1 / 0",
    "exception with a cause": "try:\n    torch.mm(1, 2)\nexcept Exception as error:\n    raise KeyError from error",
    "exception below a function in Python": "torch.nn.functional.embedding(torch.tensor([9]), torch.ones(3, 3))",
    "exception below a warning": "warnings.simplefilter('error')\ntorch.nn.functional.softmax(torch.ones(3))",
    "exception of a backward": FUNCTION + "Raises.apply(torch.ones(2, requires_grad=True)).sum().backward()",
    "syntax": "torch.ones(3).exp(); eval('1 +')",
}
OTHERS = {
    "names": "print(sys.argv, __name__, __package__, __spec__, __file__ == sys.modules['__main__'].__file__)",
    "main": "def f(): pass\nprint(f.__module__, sys.modules['__main__'].__dict__ is globals())",
    "wrapper": WRAPPER + "w = Wrapper(torch.ones(3)); torch.exp(w); torch.add(w, w); print(w.seen)",
    "log": "logging.basicConfig(stream=sys.stdout, level=logging.DEBUG); torch.ones(3).exp(); logging.info('mine')",
    "random": "torch.manual_seed(3); print(torch.rand(3), torch.nn.functional.dropout(torch.ones(4)))",
}
# Python 3.10 keeps one frame of ours where a program catches what a call raises.
CAUGHT = {
    "caught": "try:\n    torch.ones(3) @ torch.ones(4)\nexcept RuntimeError: print(traceback.format_exc())",
    "caught in a thread": "def f(): torch.ones(3) @ torch.ones(4)\nthreading.excepthook = lambda given: print("
    "''.join(traceback.format_tb(given.exc_traceback)))\n"
    "thread = threading.Thread(target=f); thread.start(); thread.join()",
    "caught where it was started twice": "thread = threading.Thread(target=print); thread.start()\n"
    "try: thread.start()\nexcept RuntimeError: print(traceback.format_exc())",
    "caught several times": "errors = []\nfor size in (4, 5):\n    try:\n        torch.ones(3) @ torch.ones(size)\n"
    "    except RuntimeError as error:\n        errors.append(error)\n"
    "print(''.join(line for each in errors for line in traceback.format_exception(each)))",
}
HEAD = "import logging, sys, threading, traceback, warnings\nimport torch\n"
PROGRAMS: Mapping[str, str] = {
    **{
        f"calls of a subclass: {name}": f"{HEAD}{SUBCLASS}{text}\nprint(Counted.calls)\n"
        for name, text in COUNTS.items()
    },
    **{f"warning {name}": f"{HEAD}{text}\n" for name, text in WARNINGS.items()},
    **{f"ends with {name}": f"{HEAD}{text}\n" for name, text in ENDINGS.items()},
    **{name: f"{HEAD}{text}\n" for name, text in OTHERS.items()},
    **{name: f"{HEAD}{text}\n" for name, text in CAUGHT.items() if sys.version_info >= (3, 11)},
}


def observed(path: Path, recorded: bool) -> dict[str, object]:
    """What a program prints, warns of and ends with."""
    dump = str(path.parent / "dumps" / path.stem)
    out, err, status, before = io.StringIO(), io.StringIO(), "", sys.excepthook
    root_handlers = list(logging.getLogger().handlers)
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            with logging_apart(), MainCapture(None, dump_path=dump).running() if recorded else nullcontext():
                execute([os.fspath(path), "--lr", "3"], False)
        except SystemExit as error:
            status = f"exit {error.code}"
        except BaseException as error:
            status = type(error).__name__
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            sys.excepthook = before
            logging.getLogger().handlers[:] = root_handlers
    said = [line for line in err.getvalue().splitlines() if not line.startswith("pytest-probe: ")]
    return {"out": out.getvalue(), "err": said, "status": status}


def main(mode: str, folder: Path) -> None:
    found = {}
    for number, (name, text) in enumerate(PROGRAMS.items()):
        path = folder / f"program{number}.py"
        path.write_text(text, encoding="utf-8")
        try:
            found[name] = observed(path, mode == "recorded")
        except BaseException:
            found[name] = {"out": "", "err": traceback.format_exc().splitlines(), "status": "broken"}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
