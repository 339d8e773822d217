"""What a program of PaddlePaddle's imports to record itself as PaddleAPEX does."""

from pytest_probe.capture.tracer import Tracer

__all__ = ["Tracer"]
