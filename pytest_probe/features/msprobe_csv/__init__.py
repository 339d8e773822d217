"""The CSV files that msprobe's checker writes, with its columns and its order, for programs that read those.

In: results with a tool's metrics. Out: the result file and the details file.
"""
