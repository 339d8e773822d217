"""--probe-benchmark: this run's results compared with another device's, and `pytest-probe compare`."""
