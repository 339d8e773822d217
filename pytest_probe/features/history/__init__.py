"""--probe-history: an SQLite file of many runs, and `pytest-probe history`."""
