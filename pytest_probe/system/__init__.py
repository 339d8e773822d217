"""The operating system: archives, locks, whole files, memory, and text that a terminal can print."""
