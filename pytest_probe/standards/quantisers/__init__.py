"""Quantisers, functions that give a matrix's numbers in few bits and a scale for each block: judged by what they were
given, apart from any product. `quantiser.judge` does it; `scales` has the rules of scales."""
