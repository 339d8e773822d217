"""--probe-compile: the device's calls go through a compiler."""
