"""Runs over time in an SQLite file: --probe-history and `pytest-probe history`.

In: the results of a run, one at a time. Out: rows in three tables, and what the rows of many runs tell.
"""
