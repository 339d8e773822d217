"""What a failing assert of a test of the user's own looks like, as --probe-asserts shows it, and how far the tolerances
of passing ones are from what they need."""
