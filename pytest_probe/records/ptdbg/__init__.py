"""The dumps of ptdbg_ascend, 2.3 and 4.0: a text file of JSON arrays, one a line, and .npy files in a folder beside it.

In: a .pkl that is text. Out: a `Dump` of undecoded records, and each as a `Call`, which lacks keyword arguments.
"""
