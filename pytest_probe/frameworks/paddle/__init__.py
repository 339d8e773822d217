"""All that the package knows of PaddlePaddle: where functions are, what arguments are called, what its CPU can do.

In: names and NumPy arrays. Out: NumPy arrays. `framework` runs calls, `signatures` names arguments.
"""
