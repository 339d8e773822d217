"""The dumps of PaddleAPEX, of Paddle 2 and 3.

In: forward_rank*.json and the files of tensors beside it. Out: a `Dump` of undecoded records, and each as a `Call`.
"""
