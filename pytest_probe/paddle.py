"""What a program of PaddlePaddle's imports to record itself as PaddleAPEX does."""

from pytest_probe.capturing.tracer import Tracer

__all__ = ["Tracer"]
