"""Calls that are sent to a checking host while the program runs.

In: the entries of a capture, with their tensors. Out: messages, in a shared folder or on a stream. A message is a file
of safetensors, whose text says what it is: nothing in it is run by who reads it.
"""
