"""--probe-cache: numbers of the reference side that later runs take over."""
