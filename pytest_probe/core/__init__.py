"""What crosses the border of a room: dumps, arguments, cases, runs, comparisons, verdicts and results.

Plain frozen data and one protocol each; nothing here runs, reads or judges.
"""
