"""One page about a run: --probe-html and `pytest-probe report`.

In: results, one at a time, and what run.json says. Out: one HTML file with its data, style and script inside.
"""
