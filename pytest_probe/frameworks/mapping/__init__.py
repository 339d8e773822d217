"""Which API of one framework corresponds to which of another one, and what makes the calls of one by the other."""

from pytest_probe.frameworks.mapping.entry import NO_COUNTERPART, Mapping

__all__ = ["NO_COUNTERPART", "Mapping"]
