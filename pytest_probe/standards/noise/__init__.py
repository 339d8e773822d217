"""The project's own rule: is the error what the precision of the arithmetic explains?

In: one comparison. Out: its verdict. `standard` holds the rule, `stages` the runs that it asks for, one after another.
"""
