"""--probe-baseline: what a run keeps for later runs, and what got worse since."""
