"""Entries that whoever works on the rule may read."""
