"""Do MindSpore's functions mean what torch's mean, of the same names or of the table? Both make torch's own sample
calls in float64.

    python benchmarks/mindspore_names.py [GLOB]        # in the environment of make test-mindspore

A name is proved where at least 20 calls agree, outputs and gradients of all floating tensors, within 1e-12 of their
scale, and none differs. Where MindSpore's kernel computes float64 in float32, or takes float32 alone, calls agree
within 2e-6, and the name is proved in float32. A call that MindSpore's CPU refuses counts for nothing; a name whose
kernel ends the process is "crashed". Without GLOB a summary follows.
"""

from __future__ import annotations

import fnmatch
import itertools
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import mindspore
import numpy as np
import torch
from msgspec import Struct
from torch.testing._internal.common_methods_invocations import op_db

from pytest_probe import frameworks
from pytest_probe.frameworks.base import Framework
from pytest_probe.frameworks.mindspore.signatures import NAMESPACES, entry_of, spelled
from pytest_probe.frameworks.mindspore.table import entries
from pytest_probe.model.dump import DtypeSpec, leaves
from pytest_probe.model.run import Leaf, Run, Wanted, Way, map_tree
from pytest_probe.numerics.dtypes import is_complex, is_floating

LIMIT, CALLS, MOST, ROUNDS = 1e-12, 20, 60, 20
# Some kernels take float64 and compute in float32; some take float32 alone.
SINGLE = 2e-6


class Proof(Struct):
    """Of a name: calls that agree, those of them in float32, calls that MindSpore refused, and the first call that
    differs."""

    name: str
    agreed: int = 0
    single: int = 0
    refused: int = 0
    differs: str = ""
    reason: str = ""

    @property
    def verdict(self) -> str:
        if self.differs:
            return "differs"
        proved = "in float32" if self.single else "proved"
        return proved if self.agreed >= CALLS else "some agree" if self.agreed else "refused"


def main() -> None:
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        for proof in proofs(frameworks.load("mindspore"), sys.argv[1]):
            if proof.agreed or proof.refused or proof.differs:
                said = proof.differs or (proof.reason if not proof.agreed else "")
                print(f"{proof.verdict:<11}{proof.name:<44}{proof.agreed:>4} agree {proof.refused:>4} refused  {said}")
        return
    lines = list(all_lines())
    for verdict in ("proved", "in float32", "some agree", "differs", "refused", "crashed"):
        print(f"{sum(line.startswith(verdict) for line in lines)} {verdict}")


def all_lines() -> Iterator[str]:
    """The lines of all names, which are printed as they come. Some kernels end the process: names that begin alike have
    one of their own, and where that ends each name has."""
    known = sorted({name for op in op_db for name in names(op)})
    for group, together in itertools.groupby(known, lambda name: name[: name.index(".") + 2]):
        ended, found = lines_of(f"{group}*")
        if ended:
            found = [line for name in together for line in lines_of(name)[1]]
        for line in found:
            print(line, flush=True)
            yield line


def lines_of(glob: str) -> tuple[bool, list[str]]:
    """Did the process end early, and what it printed."""
    command = [sys.executable, "-W", "ignore", __file__, glob]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode != 0, done.stdout.splitlines() if not done.returncode else [f"crashed    {glob}"]


def proofs(framework: Framework, glob: str) -> Iterator[Proof]:
    device = framework.device("CPU")
    for op in op_db:
        for name in names(op):
            if fnmatch.fnmatch(name, glob) and not op.variant_test_name:
                yield prove(framework, device, op, name)


def names(op: Any) -> Iterator[str]:
    """What a dump of MindSpore calls it: a function, a method, and what the table says."""
    paths = (f"torch.{op.name}", f"torch.Tensor.{op.name}")
    own = [spelled(api) for api, entry in entries().items() if entry.path in paths]
    yield from own
    functional = op.name.removeprefix("nn.functional.")
    yield f"MintFunctional.{functional}" if functional != op.name else f"Mint.{op.name}"
    if op.method_variant is not None and "." not in op.name:
        yield from {f"Tensor.{op.name}"} - set(own)


def prove(framework: Framework, device: Any, op: Any, name: str) -> Proof:
    proof, (namespace, _, api) = Proof(name), name.partition(".")
    own: Any = mindspore
    try:
        for part in f"{NAMESPACES[namespace][0]}.{api}".split(".")[1:]:
            own = getattr(own, part)
    except AttributeError:
        return proof
    entry = entry_of(name)
    other = entry or (op.method_variant if namespace == "Tensor" else op.op)
    for sample in samples(op):
        if proof.agreed + proof.refused >= MOST and (proof.agreed >= CALLS or not proof.agreed):
            break
        args, kwargs = taken([sample.input, *sample.args]), taken(sample.kwargs)
        if entry is not None:
            keywords = {theirs: keyword for keyword, theirs in entry.takes.aliases.items()}
            kwargs = {keywords.get(theirs, theirs): value for theirs, value in kwargs.items()}
        # Of empty tensors some of MindSpore's kernels divide by zero, which ends the process.
        if any(isinstance(value, Leaf) and not value.array.size for _, value in leaves([args, kwargs], "")):
            continue
        for dtype in (np.float64, np.float32):
            found = compared(framework, device, own, other, *in_dtype((args, kwargs), dtype))
            if not isinstance(found, str):
                break
        if isinstance(found, str):
            proof.refused += 1
            proof.reason = proof.reason or found
            continue
        if found > SINGLE:
            proof.differs = f"by {found:.2g}: {shown(args)} {shown(kwargs)}"[:120]
            return proof
        proof.single += found > LIMIT
        proof.agreed += 1
    return proof


def compared(framework: Framework, device: Any, own: Any, other: Any, args: Any, kwargs: Any) -> float | str:
    """How far both are apart; why one of them refuses the call."""
    try:
        theirs = ran(framework, other, args, kwargs, framework.host())
        return differing(framework, ran(framework, own, args, kwargs, device), theirs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()[:90]}".splitlines()[0]


def in_dtype(tree: Any, dtype: Any) -> Any:
    def leaf(value: Any, name: str) -> Any:
        wanted = isinstance(value, Leaf) and value.requires_grad
        return Leaf(value.array.astype(dtype), True) if wanted else value

    return map_tree(tree, "", leaf)


def samples(op: Any) -> Iterator[Any]:
    """torch's samples, drawn anew ROUNDS times: of a function of one tensor it has one or two."""
    for _ in range(ROUNDS):
        yield from itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), MOST)


def taken(tree: Any) -> Any:
    def leaf(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            return Leaf(value.detach().numpy().copy(), value.is_floating_point())
        return DtypeSpec(str(value).removeprefix("torch.")) if isinstance(value, torch.dtype) else value

    return map_tree(tree, "", leaf)


def ran(framework: Framework, function: Any, args: Any, kwargs: Any, device: Any) -> Run:
    floats = frozenset(
        name
        for name, value in (*leaves(args, "input"), *leaves(kwargs, "kwargs"))
        if isinstance(value, Leaf) and value.requires_grad
    )
    return framework.run(function, args, kwargs, Way(device), Wanted(floats, copies=True) if floats else None)


def differing(framework: Framework, ours: Run, theirs: Run) -> float:
    """As a share of the scale; inf where they are of other kinds."""
    found = apart(ours.outputs, theirs.outputs)
    names = [name for name in theirs.differentiable if name in ours.differentiable]
    if found > SINGLE or not names:
        return found
    random = np.random.default_rng(7)
    seeds = {name: random.standard_normal(theirs.outputs[name].shape) for name in names}
    mine, other = framework.gradients(ours, seeds), framework.gradients(theirs, seeds)
    # MindSpore gives zeros where torch gives none.
    every = {name: np.zeros_like(array) for each in (mine, other) for name, array in each.items()}
    return max(found, apart({**every, **mine}, {**every, **other}))


def apart(ours: Any, theirs: Any) -> float:
    if ours.keys() != theirs.keys():
        return np.inf
    return max((_apart(np.asarray(ours[name]), np.asarray(theirs[name])) for name in ours), default=0.0)


def _apart(a: Any, b: Any) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    if not (is_floating(a.dtype) or is_complex(a.dtype)):
        return 0.0 if np.array_equal(a, b) else np.inf
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return np.inf
    gap, scale = (float(np.abs(each).max(initial=0.0)) for each in (a[finite] - b[finite], b[finite]))
    return 0.0 if gap == 0.0 else gap / max(scale, 1e-300)


def shown(tree: Any) -> str:
    return str(map_tree(tree, "", lambda value, _: f"{value.array.shape}" if isinstance(value, Leaf) else value))


if __name__ == "__main__":
    main()
