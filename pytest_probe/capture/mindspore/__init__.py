"""Recording MindSpore's calls: its functions are replaced wherever modules hold them, while a capture runs.

In: a configuration and a running program. Out: entries for capture/.
"""
