"""Every clause of the noise rule is needed: with it the verdict is right, without it wrong."""

from __future__ import annotations

import pytest

from tests.evidence import clauses_of_limits, clauses_of_scale
from tests.evidence.clause import Clause

CLAUSES = (*clauses_of_scale.CLAUSES, *clauses_of_limits.CLAUSES)


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: f"{clause.name}: {clause.case}")
def test_the_verdict_is_right_with_the_clause_and_wrong_without(clause: Clause) -> None:
    found, without = clause.verdict(), clause.verdict_without()
    assert found.verdict == clause.right, found.reason
    assert without.verdict == clause.wrong, without.reason
