"""All that the package knows of PyTorch: where functions are, what arguments are called, how kernels round.

In: names and NumPy arrays. Out: NumPy arrays. `framework` runs calls, `signatures` names arguments,
`capture/` records.
"""
