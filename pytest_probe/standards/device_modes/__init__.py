"""Errors that a device makes by intent, such as TF32 or flushing to zero."""
