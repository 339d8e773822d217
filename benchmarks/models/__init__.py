"""Public models with random weights, and one training step of each."""
