"""--probe-html: a page about a run, and `pytest-probe report`."""
