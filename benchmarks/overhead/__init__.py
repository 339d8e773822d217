"""One training step of a GPT for each framework, as capture_overhead.py measures it."""
