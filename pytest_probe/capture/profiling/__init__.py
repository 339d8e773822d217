"""The time that a running program spends in each API call: tracks, statistics, sections, and what is written of them.

In: calls with their times. Out: a table, JSON lines, a trace. Knows no framework.
"""
