"""Functions that the output's own dtype defines, so that float64 is no reference for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_probe.errors import NoReference
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict


class OwnDtype:
    """Bit for bit as NumPy's function of the same name in that dtype."""

    name = "own_dtype"

    def judge(self, question: Question) -> OutputVerdict:
        arguments = [value for value in question.args if isinstance(value, np.ndarray)]
        if len(arguments) != len(question.args):
            raise NoReference(f"{question.facts.name} is defined by its dtype, and not all arguments are tensors")
        wanted = getattr(np, question.facts.name)(*arguments)
        verdict = Exact().judge(replace(question, expected=wanted.astype(question.expected.dtype)))
        return replace(verdict, standard=self.name)
