"""The standards of tools, each a class in a module of its own; this list is the one place that names them all."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.standards.tools.benchmark import Benchmark
from pytest_probe.standards.tools.mindspore import MindSpore
from pytest_probe.standards.tools.msprobe import Msprobe
from pytest_probe.standards.tools.msprobe_1_0 import Msprobe10
from pytest_probe.standards.tools.msprobe_8 import Msprobe8
from pytest_probe.standards.tools.msprobe_26 import Msprobe26
from pytest_probe.standards.tools.paddleapex import PaddleApex
from pytest_probe.standards.tools.ptdbg import Ptdbg
from pytest_probe.standards.tools.three_party import Compare, ThreeParty
from pytest_probe.standards.tools.tool import Tool

TOOLS: tuple[type[Tool], ...] = (Msprobe, Msprobe10, Msprobe8, Msprobe26, PaddleApex, MindSpore, Ptdbg, Benchmark)
# Those that judge a device beside a benchmark.
COMPARES: Mapping[str, Compare] = {tool.name: tool.compare for tool in TOOLS if issubclass(tool, ThreeParty)}
# What decides beside a benchmark where the standard is none of them.
DEFAULT = Msprobe

__all__ = ["COMPARES", "DEFAULT", "TOOLS", "Tool"]
