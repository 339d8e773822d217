"""What frameworks with a Python API have in common."""
