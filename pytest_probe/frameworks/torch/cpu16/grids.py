"""PyTorch: samples of images and volumes at a grid's places, as the steps of 16 bit that torch's own CPU takes.

Shapes: an image or volume is [N, C, extents], flat [N, C, S]; places, weights and samples are [N, L] or [N, C, L] for
the L places of a grid; extents, coordinates and corners go from the outermost dimension to x.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from pytest_probe.frameworks.torch.cpu16.formulas import constant

ATEN = torch.ops.aten
# torch's numbers for the modes of interpolation and of padding.
LINEAR, NEAREST, CUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
# How many 16-bit numbers a vector of this kernel holds, which no processor runs with longer ones.
LANES = 16
# Of the cubic convolution, and where its four neighbours lie from the cell's first element: as in torch's kernel.
A = -0.75
TAPS = (-1, 0, 1, 2)
Coordinates = Sequence[torch.Tensor]


class Axis(Struct, frozen=True):
    """How coordinates along one dimension become places, in units of its elements."""

    extent: int
    padding: int
    align: bool
    volume: bool

    @property
    def slope(self) -> torch.Tensor:
        return constant(self.extent - 1 if self.align else self.extent) / 2

    @property
    def low(self) -> float:
        return 0.0 if self.align else -0.5

    def place(self, grid: torch.Tensor) -> torch.Tensor:
        """Images and volumes are reckoned in another order."""
        if not self.volume:
            found = (grid + 1) * self.slope
            return found if self.align else found - 0.5
        if self.align:
            return (grid + 1) / 2 * constant(self.extent - 1)
        return ((grid + 1) * constant(self.extent) - 1) / 2

    def inside(self, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The place that padding leads to, and the slope there of that over the coordinate's own place."""
        slope = torch.ones_like(place)
        if self.padding == ZEROS:
            return place, slope
        if self.padding == REFLECTION:
            place, slope = self._reflected(place)
        last = constant(self.extent - 1)
        within = (place > 0) & (place < last)
        return place.clamp(min=0).minimum(last), torch.where(within, slope, 0.0)

    def _reflected(self, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.align and self.extent <= 1:
            return torch.zeros_like(place), torch.zeros_like(place)
        span = constant(self.extent - 1 if self.align else self.extent)
        shifted = place - self.low
        far = shifted.abs()
        if self.volume:
            extra, back = far.fmod(span), span - far.fmod(span)
            flipped = (far / span).floor() % 2 != 0
        else:
            extra = far - (far / (span * 2)).trunc() * (span * 2)
            back = span * 2 - extra
            flipped = extra > back
        slope = torch.where(flipped ^ (shifted < 0), -1.0, 1.0).double()
        return torch.where(flipped, back, extra) + self.low, slope


class GridSampler(Struct, frozen=True):
    """One call: its axes, the grid's coordinates, and which mode it samples in."""

    axes: tuple[Axis, ...]
    grid: torch.Tensor
    mode: int

    @classmethod
    def of(cls, x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool) -> GridSampler:
        extents = x.shape[2:]
        return cls(tuple(Axis(extent, padding, align, len(extents) == 3) for extent in extents), grid, mode)

    @property
    def volume(self) -> bool:
        return len(self.axes) == 3

    def coordinates(self) -> list[torch.Tensor]:
        flat = self.grid.reshape(self.grid.shape[0], -1, len(self.axes))
        return [axis.place(part) for axis, part in zip(self.axes, reversed(flat.unbind(-1)), strict=True)]

    def places(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Where each coordinate leads, and what a gradient there is multiplied with."""
        found = [axis.inside(place) for axis, place in zip(self.axes, self.coordinates(), strict=True)]
        slopes = [slope * axis.slope for axis, (_, slope) in zip(self.axes, found, strict=True)]
        return [place for place, _ in found], slopes

    def index(self, places: Coordinates) -> tuple[torch.Tensor, torch.Tensor]:
        """Whole places as an index into the flat image, and which of them lie in it."""
        flat, within = torch.zeros_like(places[0]).long(), torch.ones_like(places[0]).bool()
        for axis, place in zip(self.axes, places, strict=True):
            whole = place.long()
            within &= (whole >= 0) & (whole < axis.extent)
            flat = flat * axis.extent + whole.clamp(0, axis.extent - 1)
        return flat, within

    def values(self, x: torch.Tensor, places: Coordinates) -> torch.Tensor:
        flat, within = self.index(places)
        chosen = x.flatten(2).gather(2, flat.unsqueeze(1).expand(-1, x.shape[1], -1))
        return torch.where(within.unsqueeze(1), chosen, 0.0)

    def corners(self, places: Coordinates) -> Iterator[tuple[tuple[int, ...], list[torch.Tensor], list[torch.Tensor]]]:
        """Each corner of the cells: which it is (0 before, 1 behind), where it lies, and its share along each axis."""
        cells = [place.floor() for place in places]
        behind = [place - cell for place, cell in zip(places, cells, strict=True)]
        before = [
            (cell + 1) - place if self.volume else 1 - share
            for place, cell, share in zip(places, cells, behind, strict=True)
        ]
        for corner in itertools.product((0, 1), repeat=len(self.axes)):
            where = [cell + step for cell, step in zip(cells, corner, strict=True)]
            yield corner, where, [(before, behind)[step][d] for d, step in enumerate(corner)]

    def taps(self, places: Coordinates) -> Iterator[tuple[list[torch.Tensor], tuple[int, int]]]:
        """The 16 neighbours of bicubic sampling, one column after another: where they lie, and their numbers."""
        cells = [place.floor() for place in places]
        for i, j in itertools.product(range(4), repeat=2):
            yield self.padded([cells[0] + TAPS[j], cells[1] + TAPS[i]]), (i, j)

    def padded(self, places: Coordinates) -> list[torch.Tensor]:
        return [axis.inside(place)[0] for axis, place in zip(self.axes, places, strict=True)]


def product(factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Shares are multiplied from x outwards."""
    found = factors[-1]
    for factor in reversed(factors[:-1]):
        found = found * factor
    return found


def sum_in_order(terms: Sequence[torch.Tensor]) -> torch.Tensor:
    found = terms[0]
    for term in terms[1:]:
        found = found + term
    return found


def cubic_weights(t: torch.Tensor) -> list[torch.Tensor]:
    """Weights of the four neighbours; t is how far a place lies behind the second."""

    def outer(x: torch.Tensor) -> torch.Tensor:
        return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A

    def inner(x: torch.Tensor) -> torch.Tensor:
        return ((A + 2) * x - (A + 3)) * x * x + 1

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def cubic_slopes(t: torch.Tensor) -> list[torch.Tensor]:
    before, behind = -1 - t, 2 - t
    return [
        (-3 * A * before - 10 * A) * before - 8 * A,
        (-3 * (A + 2) * -t - 2 * (A + 3)) * -t,
        (3 * (A + 2) * (1 - t) - 2 * (A + 3)) * (1 - t),
        (3 * A * behind - 10 * A) * behind + 8 * A,
    ]


def grid_sampled(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool) -> torch.Tensor:
    sampler = GridSampler.of(x, grid, mode, padding, align)
    if mode == CUBIC:
        found = _cubic(sampler, x)
    elif mode == NEAREST:
        found = sampler.values(x, [place.round() for place in sampler.places()[0]])
    else:
        corners = sampler.corners(sampler.places()[0])
        found = sum_in_order([sampler.values(x, where) * product(parts).unsqueeze(1) for _, where, parts in corners])
    return found.reshape(*x.shape[:2], *grid.shape[1:-1])


def _cubic(sampler: GridSampler, x: torch.Tensor) -> torch.Tensor:
    places = sampler.coordinates()
    down, across = (cubic_weights(place - place.floor()) for place in places)
    terms = {(i, j): across[i].unsqueeze(1) * sampler.values(x, where) for where, (i, j) in sampler.taps(places)}
    return sum_in_order([down[j].unsqueeze(1) * sum_in_order([terms[i, j] for i in range(4)]) for j in range(4)])


def sampled_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    mode: int,
    padding: int,
    align: bool,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor]:
    sampler = GridSampler.of(x, grid, mode, padding, align)
    flat = grad.flatten(2)
    spread, slopes = GRID_BACKWARDS[mode](sampler, flat, x)
    of_grid = torch.zeros_like(grid)
    if slopes:
        of_grid = torch.stack([slope.reshape(grid.shape[:-1]) for slope in reversed(slopes)], -1)
    return (_spread(sampler, x, spread) if wanted[0] else None), of_grid


Contributions = list[tuple[list[torch.Tensor], torch.Tensor]]


def _nearest_backward(
    sampler: GridSampler, grad: torch.Tensor, x: torch.Tensor
) -> tuple[Contributions, list[torch.Tensor]]:
    return [([place.round() for place in sampler.places()[0]], grad)], []


def _linear_backward(
    sampler: GridSampler, grad: torch.Tensor, x: torch.Tensor
) -> tuple[Contributions, list[torch.Tensor]]:
    places, slopes = sampler.places()
    corners = list(sampler.corners(places))
    spread = [(where, product(parts).unsqueeze(1) * grad) for _, where, parts in corners]
    values = {corner: sampler.values(x, where) for corner, where, _ in corners}
    shares = {corner: parts for corner, _, parts in corners}
    terms = _of_volume if sampler.volume else _of_image
    return spread, [_in_turn(terms(values, shares, grad, axis)) * slope for axis, slope in enumerate(slopes)]


Corners = Mapping[tuple[int, ...], Any]


def _of_image(values: Corners, shares: Corners, grad: torch.Tensor, axis: int) -> list[torch.Tensor]:
    """Differences along an axis, weighed by the shares along the other."""

    def difference(other: int) -> Any:
        ends = [(step, other) if axis == 0 else (other, step) for step in (0, 1)]
        return (values[ends[1]] - values[ends[0]]) * shares[ends[0]][1 - axis].unsqueeze(1)

    return [(difference(0) + difference(1)) * grad]


def _of_volume(values: Corners, shares: Corners, grad: torch.Tensor, axis: int) -> list[torch.Tensor]:
    found = []
    for corner, value in values.items():
        term = value
        for other in (2, 1, 0):
            term = term if other == axis else term * shares[corner][other].unsqueeze(1)
        found.append(term * grad if corner[axis] else -(term * grad))
    return found


def _cubic_backward(
    sampler: GridSampler, grad: torch.Tensor, x: torch.Tensor
) -> tuple[Contributions, list[torch.Tensor]]:
    places = sampler.coordinates()
    shares = [place - place.floor() for place in places]
    (down, across), (falls, climbs) = ([made(share) for share in shares] for made in (cubic_weights, cubic_slopes))
    spread: Contributions = []
    terms: list[list[torch.Tensor]] = [[], []]
    for where, (i, j) in sampler.taps(places):
        spread.append((where, grad * across[i].unsqueeze(1) * down[j].unsqueeze(1)))
        value = sampler.values(x, where) * grad
        terms[0].append(-(value * falls[j].unsqueeze(1) * across[i].unsqueeze(1)))
        terms[1].append(-(value * climbs[i].unsqueeze(1) * down[j].unsqueeze(1)))
    return spread, [_in_turn(part) * axis.slope for part, axis in zip(terms, sampler.axes, strict=True)]


def _in_turn(terms: list[torch.Tensor]) -> torch.Tensor:
    """The sum [N, L] of terms [N, C, L], all those of one channel after another."""
    ordered = torch.stack(terms, 2).flatten(1, 2)
    return sum_in_order([torch.zeros_like(ordered[:, 0]), *ordered.unbind(1)])


def _spread(sampler: GridSampler, x: torch.Tensor, spread: Contributions) -> torch.Tensor:
    """The gradient of x: terms are added to it vector by vector of places, within one of images term by term."""
    batch, channels = x.shape[:2]
    size = x[0, 0].numel()
    found = [(sampler.index(where), term) for where, term in spread]
    # In 16 bit every sum is rounded, so that the order of the terms counts.
    order = _order(sampler.grid, len(spread), 1 if sampler.volume else LANES)
    index = torch.stack([flat for (flat, _), _ in found], 1).flatten(1)[:, order]
    within = torch.stack([inside for (_, inside), _ in found], 1).flatten(1)[:, order].reshape(-1)
    terms = torch.stack([term for _, term in found], 2).flatten(2)[:, :, order].transpose(1, 2).reshape(-1, channels)
    index = (index + size * torch.arange(batch).unsqueeze(1)).reshape(-1)
    empty = torch.zeros(batch * size, channels, dtype=torch.float64)
    piled = torch.index_put(empty, (index[within],), terms[within], accumulate=True)
    return piled.reshape(batch, size, channels).transpose(1, 2).reshape(x.shape)


def _order(grid: torch.Tensor, corners: int, lanes: int) -> torch.Tensor:
    """The order in which `corners` times L terms are added: a vector of places, first all of its first corner."""
    rows, columns = (
        (1, grid.shape[1:-1].numel()) if grid.stride(-3) == grid.stride(-2) * grid.shape[-2] else grid.shape[1:3]
    )
    places = torch.arange(rows * columns).reshape(rows, columns)
    vectors = [part for row in places for part in row.split(lanes)]
    shifts = torch.arange(corners).unsqueeze(1) * (rows * columns)
    return torch.cat([(shifts + vector).reshape(-1) for vector in vectors]) if vectors else torch.zeros(0).long()


GRID_BACKWARDS: Mapping[int, Callable[..., tuple[Contributions, list[torch.Tensor]]]] = {
    LINEAR: _linear_backward,
    NEAREST: _nearest_backward,
    CUBIC: _cubic_backward,
}
GRIDS: Mapping[Any, Callable[..., Any]] = {
    ATEN.grid_sampler_2d.default: grid_sampled,
    ATEN.grid_sampler_3d.default: grid_sampled,
    ATEN.grid_sampler_2d_backward.default: sampled_backward,
    ATEN.grid_sampler_3d_backward.default: sampled_backward,
}
