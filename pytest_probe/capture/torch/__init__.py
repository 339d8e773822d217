"""What watches a PyTorch program: function modes, hooks on modules and gradients, tensors' values at each moment.

In: a running program. Out: entries for capture/'s writer.
"""
