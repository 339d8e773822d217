"""The times of a running program, without a framework."""
