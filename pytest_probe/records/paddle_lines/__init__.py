"""Text files of Paddle's calls, one a line, as `paddle.concat(list[Tensor([2, 3],"float32"),], axis=0, )`.

In: a file. Out: a `Dump` of lines that are not parsed yet, and each as a `Call`.
"""
