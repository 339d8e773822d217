"""Models of Paddle's vision library, with random weights."""

from __future__ import annotations

from collections.abc import Callable

import paddle

BATCH = 2
SIZES = {
    "LeNet": 28, "alexnet": 224, "vgg11": 64, "resnet18": 64, "resnext50_32x4d": 64, "mobilenet_v1": 64,
    "mobilenet_v3_small": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "densenet121": 64,
}  # fmt: skip


def names() -> list[str]:
    return list(SIZES)


def training(name: str) -> tuple[int, Callable[[], None]]:
    """How many parameters a model has, and a training step of it: forward, backward and AdamW."""
    paddle.seed(0)
    model = getattr(paddle.vision.models, name)()
    model.train()
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
    channels, size = 1 if name == "LeNet" else 3, SIZES[name]
    images, labels = paddle.randn([BATCH, channels, size, size]), paddle.arange(BATCH)

    def step() -> None:
        paddle.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad()

    return sum(int(parameter.size) for parameter in model.parameters()), step
