"""Overlaps of boxes, and what losses subtract from them.

Boxes are (4, n): x and y of the centre, width, height; with corners=True x and y of two corners. A result has a number
for each pair of boxes, with cross=True one for each box of the second argument with each of the first, (m, n).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_probe.references.arguments import check_shapes

# Keeps quotients finite: of unions, and of squared diagonals.
UNION, SQUARE = 1e-16, 1e-9


class _Boxes(NamedTuple):
    left: Tensor
    top: Tensor
    right: Tensor
    bottom: Tensor


def generalized_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """IoU less the share of the enclosing box that neither covers (Rezatofighi et al. 2019, arXiv:1902.09630). boxes,
    others: (4, n). Returns (n)."""
    first, second = _pairs(boxes, others, corners=False, cross=False)
    inside = _inside(first, second)
    union = _area(first) + _area(second) - inside + UNION
    width, height = _enclosing(first, second)
    outer = width * height
    return inside / union - (outer - union) / outer


def distance_iou(boxes: Tensor, others: Tensor, *, corners: bool = False, cross: bool = False) -> Tensor:
    """IoU less the squared distance of the centres over that of the enclosing box's corners (Zheng et al. 2020,
    arXiv:1911.08287). boxes: (4, n); others: (4, m), m = n unless cross. Returns (n), or (m, n)."""
    first, second = _pairs(boxes, others, corners=corners, cross=cross)
    return _iou(first, second) - _distance(first, second)


def complete_iou(boxes: Tensor, others: Tensor, *, corners: bool = False, cross: bool = False) -> Tensor:
    """`distance_iou` less a term for unlike aspect ratios, whose weight has no gradient (Zheng et al. 2020,
    arXiv:1911.08287). Arguments and result as there."""
    first, second = _pairs(boxes, others, corners=corners, cross=cross)
    iou = _iou(first, second)
    unlike = 4 / math.pi**2 * (_angle(second) - _angle(first)).square()
    weight = (unlike / (1 + SQUARE - iou + unlike)).detach()
    return iou - _distance(first, second) - weight * unlike


def _pairs(boxes: Tensor, others: Tensor, *, corners: bool, cross: bool) -> tuple[_Boxes, _Boxes]:
    check_shapes(
        boxes.dim() == others.dim() == 2
        and boxes.shape[0] == others.shape[0] == 4
        and (cross or boxes.shape == others.shape),
        f"boxes of shapes {list(boxes.shape)} and {list(others.shape)}",
        "(4, n) and (4, m), alike unless each meets each",
    )
    return _corners(boxes, corners), _corners(others[..., None] if cross else others, corners)


def _corners(boxes: Tensor, given: bool) -> _Boxes:
    if given:
        return _Boxes(*boxes)
    x, y, width, height = boxes
    return _Boxes(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _inside(first: _Boxes, second: _Boxes) -> Tensor:
    width = torch.minimum(first.right, second.right) - torch.maximum(first.left, second.left)
    height = torch.minimum(first.bottom, second.bottom) - torch.maximum(first.top, second.top)
    return width.clamp(min=0) * height.clamp(min=0)


def _area(boxes: _Boxes) -> Tensor:
    return (boxes.right - boxes.left) * (boxes.bottom - boxes.top)


def _enclosing(first: _Boxes, second: _Boxes) -> tuple[Tensor, Tensor]:
    width = torch.maximum(first.right, second.right) - torch.minimum(first.left, second.left)
    return width, torch.maximum(first.bottom, second.bottom) - torch.minimum(first.top, second.top)


def _iou(first: _Boxes, second: _Boxes) -> Tensor:
    inside = _inside(first, second)
    areas = [(each.right - each.left) * (each.bottom - each.top + SQUARE) for each in (first, second)]
    return inside / (areas[0] + areas[1] - inside + SQUARE)


def _distance(first: _Boxes, second: _Boxes) -> Tensor:
    width, height = _enclosing(first, second)
    x = second.left + second.right - first.left - first.right
    y = second.top + second.bottom - first.top - first.bottom
    return (x.square() + y.square()) / 4 / (width.square() + height.square() + SQUARE)


def _angle(boxes: _Boxes) -> Tensor:
    return torch.atan((boxes.right - boxes.left) / (boxes.bottom - boxes.top + SQUARE))
