"""Entries that whoever works on the rule reads only when it stands."""
