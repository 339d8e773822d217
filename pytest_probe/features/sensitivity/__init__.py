"""--probe-sensitivity: which faults a case would have found, shown by judging spoiled outputs."""
