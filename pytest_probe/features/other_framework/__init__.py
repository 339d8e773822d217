"""The calls of a framework's records by another framework (--probe-framework, --probe-reference-framework)."""
