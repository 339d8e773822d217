"""The project's own rule: is the error what the precision of the arithmetic explains?

In: one comparison. Out: its verdict. `table` holds the rule, a row for each explanation, `standard` asks them.
"""
