"""The times of torch's calls, while a program runs: a function mode hands them to the track of their thread.

In: a stopwatch. Out: hooks, which know torch.
"""
