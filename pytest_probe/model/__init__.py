"""What crosses rooms: plain data about dumps, cases, runs, comparisons, verdicts and results."""
