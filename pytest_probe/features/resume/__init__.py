"""--probe-resume: a run goes on where an earlier one ended."""
