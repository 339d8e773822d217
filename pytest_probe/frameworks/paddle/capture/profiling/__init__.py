"""The times of Paddle's calls, while a program runs: replaced functions hand them to the track of their thread.

In: a stopwatch. Out: hooks, which know Paddle.
"""
