"""The calls of each framework with odd arguments, and the search for those that end the process."""
