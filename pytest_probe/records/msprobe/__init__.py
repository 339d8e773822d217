"""msprobe's dump format, of all its releases, and what is left of a damaged file.

In: dump.json, stack.json and the folder of tensors. Out: a `Dump` of undecoded records, and each as a `Call`.
"""
