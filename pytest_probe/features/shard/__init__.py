"""--probe-shard: one part of a run, and `pytest-probe merge` of all parts."""
