"""The time and the memory of a case, beside its verdict or without one."""
