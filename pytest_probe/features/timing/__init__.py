"""--probe-mode=time: the time and the memory of each case."""
