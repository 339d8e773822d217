"""Each role by what it makes of a call, through build()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.dump import SizeSpec, TensorSpec
from pytest_probe.model.run import Arguments
from tests.inputs.conftest import Build


def ints(shape: tuple[int, ...], low: int | float | None = None, high: int | float | None = None) -> TensorSpec:
    return TensorSpec("int64", shape, high, low)


def floats(*shape: int, **others: Any) -> TensorSpec:
    return TensorSpec("float32", shape, **others)


def mask(*shape: int) -> TensorSpec:
    return TensorSpec("bool", shape, True, False)


def ends(array: np.ndarray) -> tuple[int, int]:
    return int(array.min()), int(array.max())


def outputs(*shape: int) -> dict[str, Any]:
    return {"outputs": (floats(*shape),)}


def at(made: Arguments, path: str) -> np.ndarray:
    """The array at a path of the arguments, as "1.0" or the name of a keyword argument."""
    first, *rest = path.split(".")
    found: Any = made.args[int(first)] if first.isdigit() else made.kwargs[first]
    for part in rest:
        found = found[int(part)]
    return np.asarray(found.array)


INDEX, MANY = ints((40, 5)), ints((300,))
EMBEDDING, GATHER = "Functional.embedding", ("Torch.gather", "Tensor.scatter_add_", "Tensor.scatter_reduce")
LABELS = ("Functional.cross_entropy", "Functional.nll_loss")
ALONG = ("Torch.index_select", "Tensor.index_add_", "Tensor.index_fill_", "Torch.index_reduce")


@pytest.mark.parametrize(
    ("api", "args", "more", "path", "expected"),
    [
        # Rows of a weight, as far as the record allows.
        (EMBEDDING, [INDEX, floats(10, 4)], {}, "0", (0, 9)),
        (EMBEDDING, [ints((40, 5), 2, 6), floats(10, 4)], {}, "0", (2, 6)),
        (EMBEDDING, [ints((40, 5), 0, 2.0**40), floats(10, 4)], {}, "0", (0, 9)),
        (EMBEDDING, [ints((40, 5), -5, 3), floats(10, 4)], {}, "0", (0, 3)),
        (EMBEDDING, [ints((40, 5), 50, 60), floats(10, 4)], {}, "0", (9, 9)),
        (EMBEDDING, [], {"kwargs": {"input": INDEX, "weight": floats(10, 4)}}, "input", (0, 9)),
        ("Torch.embedding", [floats(10, 4), INDEX], {}, "1", (0, 9)),
        ("Functional.embedding_bag", [ints((30,)), floats(10, 4), ints((6,))], {}, "0", (0, 9)),
        # Labels are classes, and probabilities are none.
        *((api, [floats(200, 7), ints((200,))], {}, "1", (0, 6)) for api in LABELS),
        *((api, [floats(7), ints((), 2**20, 2**20)], {}, "1", (6, 6)) for api in LABELS),
        *((api, [floats(4, 7, 30), ints((4, 30), 1, 900)], {}, "1", (1, 6)) for api in LABELS),
        (LABELS[0], [floats(8, 4), floats(8, 4, max=9.0, min=1.0)], {}, "1", (1, 9)),
        ("Functional.multi_margin_loss", [floats(99, 5), ints((99,))], {}, "1", (0, 4)),
        ("Functional.multilabel_margin_loss", [floats(99, 5), ints((99, 5))], {}, "1", (-1, 4)),
        # Along a dimension, or over all elements.
        *((api, [floats(50, 4), -1, ints((50, 3)), floats(50, 3)], {}, "2", (0, 3)) for api in GATHER),
        *((api, [floats(50, 4), 0, ints((50, 3)), floats(50, 3)], {}, "2", (0, 49)) for api in GATHER),
        *((api, [floats(50, 4)], {"kwargs": {"dim": 1, "index": ints((50, 3))}}, "index", (0, 3)) for api in GATHER),
        *((api, [floats(), 0, ints(()), floats()], {}, "2", (0, 0)) for api in GATHER),
        *((api, [floats(5, 8), 1, ints((60,), 0, 2.0**31)], {}, "2", (0, 7)) for api in ALONG),
        ("Torch.take", [floats(4, 5), MANY], {}, "1", (0, 19)),
        ("Torch.take_along_dim", [floats(4, 5), MANY], {}, "1", (0, 19)),
        ("Torch.take_along_dim", [floats(4, 5), ints((60, 5)), 0], {}, "1", (0, 3)),
        ("Tensor.__getitem__", [floats(3, 4, 50), [slice(None), None, ..., MANY]], {}, "1.3", (0, 49)),
        ("Tensor.__getitem__", [floats(3, 4, 50), [MANY, ints((400,), -2, 900)]], {}, "1.0", (0, 2)),
        ("Tensor.__getitem__", [floats(3, 4, 50), [MANY, ints((400,), -2, 900)]], {}, "1.1", (-2, 3)),
        ("Tensor.__getitem__", [floats(6, 2), ints((99,), 0, 5)], {}, "1", (0, 5)),
        # As wide as the output.
        ("Functional.one_hot", [MANY, 5], {}, "0", (0, 4)),
        ("Functional.one_hot", [MANY], {"outputs": (ints((300, 6)),)}, "0", (0, 5)),
        ("Functional.one_hot", [ints((90,), 1, 7)], {}, "0", (1, 7)),
        ("Torch.bincount", [MANY], {"outputs": (ints((4,)),)}, "0", (0, 3)),
        (
            "Functional.max_unpool1d",
            [floats(1, 2, 9), ints((1, 2, 90)), 2],
            {"outputs": (floats(1, 2, 18),)},
            "1",
            (0, 17),
        ),
        (
            "Functional.max_unpool2d",
            [floats(1, 9, 9), ints((1, 90, 9)), 2],
            {"outputs": (floats(1, 6, 4),)},
            "1",
            (0, 23),
        ),
        ("Torch.unravel_index", [ints((99,)), SizeSpec((3, 4))], {}, "0", (0, 11)),
        # An API without rules follows the statistics.
        ("Torch.my_gather", [ints((99,), -3, 3), floats(2, 2)], {}, "0", (-3, 3)),
        ("Torch.gather", [floats(2, 2), "dim", ints((99,), -3, 3)], {}, "2", (-3, 3)),
        # Several operands have groups of their own.
        (
            *("NPU.npu_grouped_matmul", [[floats(10, 8), floats(3, 8)], [floats(8, 5)]]),
            *({"kwargs": {"group_list": ints((2,), 2, 9)}}, "group_list", (2, 9)),
        ),
    ],
)
def test_the_ends_of_indices(
    arguments: Build, api: str, args: list[Any], more: dict[str, Any], path: str, expected: tuple[int, int]
) -> None:
    assert ends(at(arguments(*args, api=api, **more), path)) == expected


GET, SET, ROWS = "Tensor.__getitem__", "Tensor.__setitem__", floats(10, 3)


@pytest.mark.parametrize(
    ("api", "args", "more", "path", "expected"),
    [
        (GET, [ROWS, mask(10)], outputs(7, 3), "1", 7),
        (GET, [ROWS, mask(10, 3)], outputs(11), "1", 11),
        (GET, [ROWS, mask(10)], outputs(0, 3), "1", 0),
        (GET, [floats(2, 10, 3), [slice(None), mask(10)]], outputs(2, 4, 3), "1.1", 4),
        (GET, [floats(2, 3, 10), [..., mask(10)]], outputs(2, 3, 9), "1.1", 9),
        (GET, [floats(2, 10, 3), [0, mask(10)]], outputs(6, 3), "1.1", 6),
        (GET, [floats(8, 3, 8), [mask(8), slice(None), mask(8)]], outputs(5, 3), "1.0", 5),
        (GET, [floats(8, 3, 8), [mask(8), slice(None), mask(8)]], outputs(5, 3), "1.2", 5),
        (GET, [floats(10), mask(10)], {}, "1", 5),
        (SET, [ROWS, mask(10), floats(4, 3)], {}, "1", 4),
        (SET, [ROWS, mask(10, 3), 0.0], {}, "1", 15),
        ("Tensor.index_put_", [floats(10), [mask(10)], floats(3), True], outputs(10), "1.0", 3),
        ("Torch.masked_select", [floats(4, 5), mask(4, 5)], outputs(13), "1", 13),
        ("Tensor.masked_select", [floats(4, 5), mask(5)], outputs(12), "1", 3),
        ("Tensor.masked_scatter_", [floats(4, 5), mask(4, 5), floats(6)], {}, "1", 6),
        ("Torch.where", [mask(4, 5), floats(4, 5), floats(4, 5)], outputs(4, 5), "0", 10),
        ("Torch.repeat_interleave", [floats(6, 2), ints((6,), 0, 9), 0], outputs(17, 2), "1", 17),
    ],
)
def test_outputs_and_written_values_fix_how_many_are_selected(
    arguments: Build, api: str, args: list[Any], more: dict[str, Any], path: str, expected: int
) -> None:
    found = at(arguments(*args, api=api, **more), path)
    assert found.sum() == expected
    assert api != "Torch.repeat_interleave" or found.max() - found.min() == 1


@pytest.mark.parametrize(
    ("api", "args", "more", "path"),
    [
        ("Tensor.scatter_", [floats(6, 9), 1, ints((6, 5)), floats(6, 5)], {}, "2"),
        ("Torch.scatter", [floats(8, 3), 1, ints((8, 3)), floats(8, 3)], {}, "2"),
        ("Tensor.index_copy_", [floats(20, 2), 0, ints((15,))], {}, "2"),
        ("Tensor.put_", [floats(4, 5), ints((15,))], {}, "1"),
        ("Tensor.index_put_", [floats(4, 5), [ints((4,)), ints((4,))], floats(4)], {}, "1.0"),
        ("Tensor.index_put_", [floats(4, 5), [ints((4,)), ints((4,))], floats(4)], {}, "1.1"),
        ("Torch.index_select", [floats(30, 2), 0, ints((30,), 0, 29)], {}, "2"),
        ("Functional.max_unpool2d", [floats(6, 4, 4), ints((6, 4, 4)), 2], outputs(6, 8, 8), "1"),
    ],
)
def test_writes_go_to_distinct_places(
    arguments: Build, api: str, args: list[Any], more: dict[str, Any], path: str
) -> None:
    """Two values in one place would be written in any order."""
    found = at(arguments(*args, api=api, **more), path)
    rows = found.reshape(found.shape[0] if found.ndim > 1 else 1, -1)
    assert all(len(set(row)) == rows.shape[1] for row in rows.tolist())
    assert api != "Torch.index_select" or found.tolist() != sorted(found.tolist())


def test_writes_along_the_first_dimension_go_to_distinct_places(arguments: Build) -> None:
    index = arguments(floats(9, 6), 0, ints((5, 6)), floats(5, 6), api="Tensor.scatter_").args[2].array
    assert all(len(set(row)) == 5 for row in index.T.tolist())


def test_embedding_bag_offsets_rise_from_zero(arguments: Build) -> None:
    for kwargs, last in (({}, None), ({"include_last_offset": True}, 30)):
        call = (ints((30,)), floats(10, 4), ints((6,)))
        offsets = arguments(*call, kwargs=kwargs, api="Functional.embedding_bag").args[2].array
        assert offsets[0] == 0
        assert (np.diff(offsets) >= 0).all()
        assert offsets[-1] <= 30 if last is None else offsets[-1] == last


@pytest.mark.parametrize(
    ("api", "args", "place", "values"),
    [
        ("Functional.margin_ranking_loss", [floats(30), floats(30), ints((30,), -1, 1)], 2, {-1, 1}),
        ("Functional.soft_margin_loss", [floats(30), floats(30, max=1.0, min=1.0)], 1, {1.0}),
    ],
)
def test_margin_targets_are_signs(arguments: Build, api: str, args: list[Any], place: int, values: set[float]) -> None:
    assert set(arguments(*args, api=api).args[place].array.tolist()) == values


@pytest.mark.parametrize("api", ["VF.lstm", "VF.gru", "VF.rnn_tanh", "VF.rnn_relu"])
@pytest.mark.parametrize(
    ("total", "recorded", "expected"),
    [
        (11, (1, 4), [4, 4, 1, 1, 1]),
        (12, (2, 3), [3, 3, 3, 2, 1]),
        (5, (1, 1), [1] * 5),
        (10, (2, 2), [2] * 5),
        (11, (None, None), [3, 3, 3, 1, 1]),
    ],
)
def test_packed_batches(arguments: Build, api: str, total: int, recorded: Any, expected: list[int]) -> None:
    made = arguments(floats(total, 3), ints((5,), *recorded), floats(1, 4, 2), [floats(8, 3)], api=api)
    assert made.args[1].array.tolist() == expected
    unpacked = arguments(floats(total, 2, 3), floats(1, 2, 2), [floats(8, 3)], api=api)
    assert unpacked.args[1].array.dtype == np.float32


def test_ignore_index_stays_only_where_it_was_recorded(arguments: Build) -> None:
    def labels(low: int, high: int, **kwargs: int) -> np.ndarray:
        call = (floats(200, 7), ints((200,), low, high))
        return arguments(*call, kwargs=kwargs, api="Functional.cross_entropy").args[1].array

    assert set(labels(-100, 5).tolist()) == {-100, 0, 1, 2, 3, 4, 5}
    assert (labels(-100, 5) == -100).sum() == 20
    assert ends(labels(-1, 5)) == (0, 5)
    assert set(labels(-1, 5, ignore_index=-1).tolist()) == {-1, 0, 1, 2, 3, 4, 5}
    assert set(labels(0, 255, ignore_index=255).tolist()) == {0, 1, 2, 3, 4, 5, 6, 255} - {1, 2, 3, 4, 5, 6}
    assert ends(labels(0, 5, ignore_index=0)) == (0, 5)
    assert set(labels(-100, -100).tolist()) == {-100}


@pytest.mark.parametrize("api", ["Torch.nonzero", "Torch.argwhere", "Tensor.nonzero", "Torch.where"])
def test_nonzero_has_as_many_as_its_output(arguments: Build, api: str) -> None:
    outputs = (ints((8, 2)),)
    numbers = floats(5, 6, max=2.0, min=0.0, mean=0.3, norm=3.0)
    for spec in (mask(5, 6), numbers, ints((5, 6), 0, 3), ints((5, 6), -1, 0), ints((5, 6), 1, 4)):
        array = arguments(spec, outputs=outputs, api=api).args[0].array
        assert np.count_nonzero(array) == 8
    assert arguments(numbers, outputs=outputs, api=api).args[0].array.max() == 2.0


def test_attention_masks_hide_no_whole_row(arguments: Build) -> None:
    tensor = floats(2, 2, 2)
    for seed in range(5):
        call = (tensor, tensor, tensor, mask(2, 2))
        made = arguments(*call, api="Functional.scaled_dot_product_attention", seed=seed)
        assert made.args[3].array[:, 0].all()
        named = {"key_padding_mask": mask(8, 2)}
        made = arguments(kwargs=named, api="Functional.multi_head_attention_forward", seed=seed)
        assert not made.kwargs["key_padding_mask"].array[:, 0].any()


def test_ctc_loss(arguments: Build) -> None:
    call = (floats(50, 4, 20), ints((4, 15)), ints((4,)), ints((4,), 5, 15))
    made = [leaf.array for leaf in arguments(*call, api="Functional.ctc_loss").args[1:]]
    assert (made[0].min(), made[0].max()) == (1, 19)
    assert 15 <= made[1].min() <= made[1].max() <= 50
    assert (made[2].min(), made[2].max()) == (5, 15)
    joined = arguments(floats(50, 4, 20), ints((23,)), ints((4,)), ints((4,)), 19, api="Functional.ctc_loss").args
    assert ends(joined[1].array) == (0, 18)
    assert joined[3].array.sum() == 23


@pytest.mark.parametrize("statistics", [{}, {"max": 1.4, "min": -0.3, "mean": 0.5, "norm": 12.0}])
def test_probabilities_stay_between_zero_and_one(arguments: Build, statistics: dict[str, float]) -> None:
    spec = floats(400, **statistics)
    for leaf in arguments(spec, spec, api="Functional.binary_cross_entropy").args:
        assert 0 <= leaf.array.min() < 0.1
        assert 0.9 < leaf.array.max() <= 1
    assert arguments(spec, api="Torch.bernoulli").args[0].array.max() <= 1
    assert arguments(spec, spec, spec, api="Functional.batch_norm").args[2].array.min() >= 0
    assert arguments(spec, spec, spec, spec, spec, api="Torch.batch_norm").args[4].array.min() >= 0
    assert arguments(spec, spec, api="Torch.normal").args[1].array.min() >= 0
    assert arguments(spec, spec, api="Functional.kl_div").args[1].array.min() >= 0


def test_a_draw_without_replacement_has_enough_to_draw_from(arguments: Build) -> None:
    weights = floats(20, 8, max=1.0, min=0.0, mean=0.125, norm=20**0.5)
    made = arguments(weights, 3, api="Torch.multinomial").args[0].array
    assert ((made > 0).sum(axis=1) >= 3).all()
    assert (made >= 0).all()


def test_matrices(arguments: Build) -> None:
    spec = floats(3, 6, 6, max=4.0, min=-1.0, mean=0.5, norm=12.0)
    made = arguments(spec, api="Torch.linalg.cholesky").args[0].array
    assert np.array_equal(made, made.swapaxes(1, 2))
    assert np.linalg.cond(made).max() < 20
    assert np.linalg.eigvalsh(made).min() > 0
    assert np.linalg.norm(made) == pytest.approx(12.0, rel=1e-5)
    complexes = TensorSpec("complex64", (4, 4), 2.0, 0.1)
    made = arguments(complexes, api="Torch.cholesky").args[0].array
    assert np.linalg.eigvalsh(made).min() > 0
    assert np.abs(made).max() == pytest.approx(2.0, rel=1e-5)
    made = arguments(spec, api="Torch.linalg.eigh").args[0].array
    assert np.array_equal(made, made.swapaxes(1, 2))
    assert made.max() <= 4.0
    made = arguments(complexes, api="Torch.linalg.eigvalsh").args[0].array
    assert np.array_equal(made, made.conj().T)
    for api, place in (("Torch.cholesky_solve", 1), ("Torch.linalg.solve_triangular", 0), ("Torch.lu_solve", 1)):
        made = arguments(spec, spec, api=api).args[place].array
        assert np.linalg.cond(np.tril(made)).max() < 50


@pytest.mark.parametrize("api", ["Torch.linalg.solve", "Torch.linalg.inv", "Torch.slogdet", "Tensor.det"])
def test_a_matrix_of_ones_and_zeros_is_invertible(arguments: Build, api: str) -> None:
    spec = floats(2, 16, 16, max=1.0, min=0.0, mean=1 / 16, norm=32**0.5, zeros=15 / 16)
    made = arguments(*[spec] * (1 + (api == "Torch.linalg.solve")), api=api).args[0].array
    assert np.isfinite(np.linalg.cond(made)).all()
    assert (made == 0).mean() > 0.9


def test_boundaries_rise_and_divisors_are_not_zero(arguments: Build) -> None:
    made = arguments(floats(4, 9), floats(4, 3), api="Torch.searchsorted").args[0].array
    assert (np.diff(made, axis=1) >= 0).all()
    assert (np.diff(arguments(floats(4), floats(9), api="Torch.bucketize").args[1].array) >= 0).all()
    made = arguments(ints((90,), 0, 9), ints((90,), -2, 2), api="Tensor.__floordiv__").args[1].array
    assert set(made.tolist()) == {-2, -1, 1, 2}
    assert 0 in arguments(ints((90,)), ints((90,), 0, 2), api="Torch.div").args[1].array


def attention(arguments: Build, **kwargs: Any) -> np.ndarray:
    """The mask of a call of torch_npu's attention, of four queries and six keys, or of a sparse mode."""
    shape = (2048, 2048) if kwargs.get("sparse_mode", 0) > 1 else (2, 1, 4, 6)
    query = floats(2, 4, 3, 8)
    named = {"atten_mask": mask(*shape), **kwargs}
    made = arguments(query, query, query, 3, "BSND", kwargs=named, api="NPU.npu_fusion_attention")
    return np.asarray(made.kwargs["atten_mask"].array)


def test_a_mask_of_attention_is_that_of_its_mode(arguments: Build) -> None:
    for mode in (2, 3, 4):
        assert np.array_equal(attention(arguments, sparse_mode=mode), np.triu(np.ones((2048, 2048), bool), 1))
    found = attention(arguments, pre_tockens=1, next_tockens=2)
    shown = ["".join("x" if each else "." for each in row) for row in ~found[1, 0]]
    assert shown == ["xxx...", "xxxx..", ".xxxx.", "..xxxx"]
    # Without limits none hides a row.
    for more in ({}, {"sparse_mode": 1, "pre_tockens": 1}, {"pre_tockens": 9, "next_tockens": 9}):
        found = attention(arguments, **more)
        assert found.any()
        assert not found.all(-1).any()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [4, 3, 3]),
        ({"group_list_type": 1}, [4, 3, 3]),
        ({"group_type": 2}, [3, 3, 2]),
        ({"group_type": 2, "group_list_type": 1}, [3, 3, 2]),
    ],
)
def test_groups_of_a_product_add_up(arguments: Build, more: dict[str, int], expected: list[int]) -> None:
    kwargs = {"group_list": ints((3,)), **more}
    made = arguments([floats(10, 8)], [floats(3, 8, 5)], kwargs=kwargs, api="NPU.npu_grouped_matmul")
    found = made.kwargs["group_list"].array
    counts = found if "group_list_type" in more else np.diff(found, prepend=0)
    assert sorted(counts.tolist(), reverse=True) == expected
