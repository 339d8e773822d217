"""Calls that come from a program while it runs: each becomes an item.

In: messages, from a shared folder or from streams (capture/online). Out: dumps of one call each, in a private folder.
"""
