"""Each role by what it makes of a call, through build()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.dump import SizeSpec, TensorSpec
from tests.inputs.conftest import Build


def ints(shape: tuple[int, ...], low: int | float | None = None, high: int | float | None = None) -> TensorSpec:
    return TensorSpec("int64", shape, high, low)


def floats(*shape: int, **others: Any) -> TensorSpec:
    return TensorSpec("float32", shape, **others)


def mask(*shape: int) -> TensorSpec:
    return TensorSpec("bool", shape, True, False)


def ends(array: np.ndarray) -> tuple[int, int]:
    return int(array.min()), int(array.max())


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [((None, None), (0, 9)), ((2, 6), (2, 6)), ((0, 2.0**40), (0, 9)), ((-5, 3), (0, 3)), ((50, 60), (9, 9))],
)
def test_embedding_indices_are_rows_of_the_weight(arguments: Build, recorded: Any, expected: Any) -> None:
    index, weight = ints((40, 5), *recorded), floats(10, 4)
    assert ends(arguments(index, weight, api="Functional.embedding").args[0].array) == expected
    assert ends(arguments(weight, index, api="Torch.embedding").args[1].array) == expected
    by_name = arguments(kwargs={"input": index, "weight": weight}, api="Functional.embedding").kwargs
    assert ends(by_name["input"].array) == expected


def test_embedding_bag_offsets_rise_from_zero(arguments: Build) -> None:
    made = arguments(ints((30,)), floats(10, 4), ints((6,)), api="Functional.embedding_bag").args
    offsets = made[2].array
    assert ends(made[0].array) == (0, 9)
    assert offsets[0] == 0
    assert (np.diff(offsets) >= 0).all()
    assert offsets[-1] <= 30
    closed = arguments(
        ints((30,)),
        floats(10, 4),
        ints((6,)),
        kwargs={"include_last_offset": True},
        api="Functional.embedding_bag",
    )
    assert closed.args[2].array[-1] == 30


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


@pytest.mark.parametrize("api", ["Functional.cross_entropy", "Functional.nll_loss"])
def test_labels_are_classes(arguments: Build, api: str) -> None:
    assert ends(arguments(floats(200, 7), ints((200,)), api=api).args[1].array) == (0, 6)
    assert ends(arguments(floats(7), ints((), 2**20, 2**20), api=api).args[1].array) == (6, 6)
    assert ends(arguments(floats(4, 7, 30), ints((4, 30), 1, 900), api=api).args[1].array) == (1, 6)


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


def test_class_probabilities_are_no_labels(arguments: Build) -> None:
    target = floats(8, 4, max=0.9, min=0.01, mean=0.25, norm=2.0)
    assert arguments(floats(8, 4), target, api="Functional.cross_entropy").args[1].array.max() == np.float32(0.9)


@pytest.mark.parametrize("api", ["Torch.gather", "Tensor.scatter_add_", "Tensor.scatter_reduce", "Torch.scatter_add"])
def test_indices_along_a_dimension(arguments: Build, api: str) -> None:
    source = floats(50, 3)
    assert ends(arguments(floats(50, 4), -1, ints((50, 3)), source, api=api).args[2].array) == (0, 3)
    assert ends(arguments(floats(50, 4), 0, ints((50, 3)), source, api=api).args[2].array) == (0, 49)
    named = arguments(floats(50, 4), kwargs={"dim": 1, "index": ints((50, 3))}, api=api).kwargs
    assert ends(named["index"].array) == (0, 3)
    assert arguments(floats(), 0, ints(()), floats(), api=api).args[2].array.item() == 0


@pytest.mark.parametrize("api", ["Torch.index_select", "Tensor.index_add_", "Tensor.index_fill_", "Torch.index_reduce"])
def test_flat_indices_along_a_dimension(arguments: Build, api: str) -> None:
    assert ends(arguments(floats(5, 8), 1, ints((60,), 0, 2.0**31), api=api).args[2].array) == (0, 7)


def test_writes_go_to_distinct_places(arguments: Build) -> None:
    index = arguments(floats(6, 9), 1, ints((6, 5)), floats(6, 5), api="Tensor.scatter_").args[2].array
    assert all(len(set(row)) == 5 for row in index.tolist())
    index = arguments(floats(9, 6), 0, ints((5, 6)), floats(5, 6), api="Tensor.scatter_").args[2].array
    assert all(len(set(row)) == 5 for row in index.T.tolist())
    index = arguments(floats(2, 3, 4), 1, ints((2, 3, 4)), floats(2, 3, 4), api="Torch.scatter").args[2].array
    assert (np.sort(index, axis=1) == np.arange(3).reshape(1, 3, 1)).all()
    assert len(set(arguments(floats(20, 2), 0, ints((15,)), api="Tensor.index_copy_").args[2].array.tolist())) == 15
    assert len(set(arguments(floats(20, 2), ints((3, 5)), api="Tensor.put_").args[1].array.reshape(-1).tolist())) == 15
    index = arguments(floats(4, 5), [ints((4,)), ints((4,))], floats(4), api="Tensor.index_put_").args[1]
    assert sorted(index[0].array.tolist()) == [0, 1, 2, 3]
    assert len(set(index[1].array.tolist())) == 4


def test_as_many_indices_as_places_are_a_permutation(arguments: Build) -> None:
    index = arguments(floats(30, 2), 0, ints((30,), 0, 29), api="Torch.index_select").args[2].array
    assert sorted(index.tolist()) == list(range(30))
    assert index.tolist() != list(range(30))


def test_take_goes_over_all_elements(arguments: Build) -> None:
    assert ends(arguments(floats(4, 5), ints((300,)), api="Torch.take").args[1].array) == (0, 19)
    assert ends(arguments(floats(4, 5), ints((300,)), api="Torch.take_along_dim").args[1].array) == (0, 19)
    assert ends(arguments(floats(4, 5), ints((60, 5)), 0, api="Torch.take_along_dim").args[1].array) == (0, 3)


def test_subscripts_reach_into_their_dimension(arguments: Build) -> None:
    made = arguments(floats(3, 4, 50), [slice(None), None, Ellipsis, ints((400,))], api="Tensor.__getitem__").args[1]
    assert ends(made[3].array) == (0, 49)
    made = arguments(floats(3, 4, 50), [ints((400,)), ints((400,), -2, 900)], api="Tensor.__getitem__").args[1]
    assert made[0].array.max() == 2
    assert ends(made[1].array) == (-2, 3)
    assert ends(arguments(floats(6, 2), ints((99,), 0, 5), api="Tensor.__getitem__").args[1].array) == (0, 5)


def selected(arguments: Build, x: TensorSpec, subscript: Any, output: TensorSpec) -> Any:
    return arguments(x, subscript, outputs=(output,), api="Tensor.__getitem__").args[1]


def test_outputs_fix_how_many_a_mask_selects(arguments: Build) -> None:
    assert selected(arguments, floats(10, 3), mask(10), floats(7, 3)).array.sum() == 7
    assert selected(arguments, floats(10, 3), mask(10, 3), floats(11)).array.sum() == 11
    assert selected(arguments, floats(10, 3), mask(10), floats(0, 3)).array.sum() == 0
    assert selected(arguments, floats(2, 10, 3), [slice(None), mask(10)], floats(2, 4, 3))[1].array.sum() == 4
    assert selected(arguments, floats(2, 3, 10), [Ellipsis, mask(10)], floats(2, 3, 9))[1].array.sum() == 9
    assert selected(arguments, floats(2, 10, 3), [0, mask(10)], floats(6, 3))[1].array.sum() == 6
    both = selected(arguments, floats(8, 3, 8), [mask(8), slice(None), mask(8)], floats(5, 3))
    assert [both[0].array.sum(), both[2].array.sum()] == [5, 5]
    assert arguments(floats(10), mask(10), api="Tensor.__getitem__").args[1].array.sum() == 5


def test_written_values_fix_how_many_a_mask_selects(arguments: Build) -> None:
    made = arguments(floats(10, 3), mask(10), floats(4, 3), api="Tensor.__setitem__")
    assert made.args[1].array.sum() == 4
    assert arguments(floats(10, 3), mask(10, 3), 0.0, api="Tensor.__setitem__").args[1].array.sum() == 15
    made = arguments(floats(10), [mask(10)], floats(3), True, outputs=(floats(10),), api="Tensor.index_put_")
    assert made.args[1][0].array.sum() == 3


def test_masked_select_and_scatter(arguments: Build) -> None:
    made = arguments(floats(4, 5), mask(4, 5), outputs=(floats(13),), api="Torch.masked_select")
    assert made.args[1].array.sum() == 13
    made = arguments(floats(4, 5), mask(5), outputs=(floats(12),), api="Tensor.masked_select")
    assert made.args[1].array.sum() == 3
    made = arguments(floats(4, 5), mask(4, 5), floats(6), api="Tensor.masked_scatter_")
    assert made.args[1].array.sum() == 6


@pytest.mark.parametrize("api", ["Torch.nonzero", "Torch.argwhere", "Tensor.nonzero", "Torch.where"])
def test_nonzero_has_as_many_as_its_output(arguments: Build, api: str) -> None:
    outputs = (ints((8, 2)),)
    numbers = floats(5, 6, max=2.0, min=0.0, mean=0.3, norm=3.0)
    for spec in (mask(5, 6), numbers, ints((5, 6), 0, 3), ints((5, 6), -1, 0), ints((5, 6), 1, 4)):
        array = arguments(spec, outputs=outputs, api=api).args[0].array
        assert np.count_nonzero(array) == 8
    assert arguments(numbers, outputs=outputs, api=api).args[0].array.max() == 2.0


def test_where_with_three_arguments_is_no_nonzero(arguments: Build) -> None:
    made = arguments(mask(4, 5), floats(4, 5), floats(4, 5), outputs=(floats(4, 5),), api="Torch.where")
    assert made.args[0].array.sum() == 10


def test_attention_masks_hide_no_whole_row(arguments: Build) -> None:
    tensor = floats(2, 2, 2)
    for seed in range(5):
        call = (tensor, tensor, tensor, mask(2, 2))
        made = arguments(*call, api="Functional.scaled_dot_product_attention", seed=seed)
        assert made.args[3].array[:, 0].all()
        named = {"key_padding_mask": mask(8, 2)}
        made = arguments(kwargs=named, api="Functional.multi_head_attention_forward", seed=seed)
        assert not made.kwargs["key_padding_mask"].array[:, 0].any()


def test_one_hot_and_bincount_have_the_recorded_width(arguments: Build) -> None:
    assert ends(arguments(ints((90,)), 5, api="Functional.one_hot").args[0].array) == (0, 4)
    assert ends(arguments(ints((90,)), outputs=(ints((90, 6)),), api="Functional.one_hot").args[0].array) == (0, 5)
    assert ends(arguments(ints((90,), 1, 7), api="Functional.one_hot").args[0].array) == (1, 7)
    assert ends(arguments(ints((90,)), outputs=(ints((4,)),), api="Torch.bincount").args[0].array) == (0, 3)


def test_ctc_loss(arguments: Build) -> None:
    call = (floats(50, 4, 20), ints((4, 15)), ints((4,)), ints((4,), 5, 15))
    made = [leaf.array for leaf in arguments(*call, api="Functional.ctc_loss").args[1:]]
    assert (made[0].min(), made[0].max()) == (1, 19)
    assert 15 <= made[1].min() <= made[1].max() <= 50
    assert (made[2].min(), made[2].max()) == (5, 15)
    joined = arguments(floats(50, 4, 20), ints((23,)), ints((4,)), ints((4,)), 19, api="Functional.ctc_loss").args
    assert ends(joined[1].array) == (0, 18)
    assert joined[3].array.sum() == 23


def test_repeats_and_parts_add_up(arguments: Build) -> None:
    x, output = floats(6, 2), floats(17, 2)
    made = arguments(x, ints((6,), 0, 9), 0, outputs=(output,), api="Torch.repeat_interleave")
    assert made.args[1].array.sum() == 17
    assert made.args[1].array.max() - made.args[1].array.min() == 1


def test_unpooling_and_unravelling(arguments: Build) -> None:
    made = arguments(floats(1, 2, 9), ints((1, 2, 90)), 2, outputs=(floats(1, 2, 18),), api="Functional.max_unpool1d")
    assert ends(made.args[1].array) == (0, 17)
    made = arguments(floats(1, 9, 9), ints((1, 90, 9)), 2, outputs=(floats(1, 6, 4),), api="Functional.max_unpool2d")
    assert ends(made.args[1].array) == (0, 23)
    # Two values in one place would be written in any order.
    made = arguments(
        floats(2, 3, 4, 4), ints((2, 3, 4, 4)), 2, outputs=(floats(2, 3, 8, 8),), api="Functional.max_unpool2d"
    )
    planes = made.args[1].array.reshape(6, 16)
    assert all(len(set(plane.tolist())) == 16 for plane in planes)
    made = arguments(ints((99,)), SizeSpec((3, 4)), api="Torch.unravel_index")
    assert ends(made.args[0].array) == (0, 11)


def test_margin_targets_are_signs(arguments: Build) -> None:
    x = floats(30)
    made = arguments(x, x, TensorSpec("int64", (30,), 1, -1), api="Functional.margin_ranking_loss").args[2].array
    assert set(made.tolist()) == {-1, 1}
    made = arguments(x, floats(30, max=1.0, min=1.0), api="Functional.soft_margin_loss").args[1].array
    assert set(made.tolist()) == {1.0}
    assert ends(arguments(floats(99, 5), ints((99,)), api="Functional.multi_margin_loss").args[1].array) == (0, 4)
    made = arguments(floats(99, 5), ints((99, 5)), api="Functional.multilabel_margin_loss").args[1].array
    assert ends(made) == (-1, 4)


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


def test_pivots_are_at_or_below_their_row(arguments: Build) -> None:
    made = arguments(floats(5, 5), TensorSpec("int32", (5,), 5, 1), floats(5, 1), api="Torch.linalg.lu_solve")
    pivots = made.args[1].array
    assert (pivots >= [1, 2, 3, 4, 5]).all()
    assert (pivots <= 5).all()


def test_boundaries_rise_and_divisors_are_not_zero(arguments: Build) -> None:
    made = arguments(floats(4, 9), floats(4, 3), api="Torch.searchsorted").args[0].array
    assert (np.diff(made, axis=1) >= 0).all()
    assert (np.diff(arguments(floats(4), floats(9), api="Torch.bucketize").args[1].array) >= 0).all()
    made = arguments(ints((90,), 0, 9), ints((90,), -2, 2), api="Tensor.__floordiv__").args[1].array
    assert set(made.tolist()) == {-2, -1, 1, 2}
    assert 0 in arguments(ints((90,)), ints((90,), 0, 2), api="Torch.div").args[1].array


def test_an_api_without_rules_follows_the_statistics(arguments: Build) -> None:
    assert ends(arguments(ints((99,), -3, 3), floats(2, 2), api="Torch.my_gather").args[0].array) == (-3, 3)
    assert ends(arguments(floats(2, 2), "dim", ints((99,), -3, 3), api="Torch.gather").args[2].array) == (-3, 3)


def attention(arguments: Build, **kwargs: Any) -> np.ndarray:
    """The mask of a call of torch_npu's attention, of four queries and six keys, or of a sparse mode."""
    shape = (2048, 2048) if kwargs.get("sparse_mode", 0) > 1 else (2, 1, 4, 6)
    query = floats(2, 4, 3, 8)
    named = {"atten_mask": mask(*shape), **kwargs}
    made = arguments(query, query, query, 3, "BSND", kwargs=named, api="NPU.npu_fusion_attention")
    return np.asarray(made.kwargs["atten_mask"].array)


@pytest.mark.parametrize("mode", [2, 3, 4])
def test_a_sparse_mode_takes_a_triangle(arguments: Build, mode: int) -> None:
    found = attention(arguments, sparse_mode=mode)
    assert np.array_equal(found, np.triu(np.ones((2048, 2048), bool), 1))


def test_limits_of_an_attention_are_a_band(arguments: Build) -> None:
    found = attention(arguments, pre_tockens=1, next_tockens=2)
    shown = ["".join("x" if each else "." for each in row) for row in ~found[1, 0]]
    assert shown == ["xxx...", "xxxx..", ".xxxx.", "..xxxx"]


@pytest.mark.parametrize("more", [{}, {"sparse_mode": 1, "pre_tockens": 1}, {"pre_tockens": 9, "next_tockens": 9}])
def test_a_mask_without_limits_hides_no_row(arguments: Build, more: dict[str, int]) -> None:
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


def test_several_operands_have_groups_of_their_own(arguments: Build) -> None:
    kwargs = {"group_list": ints((2,), 2, 9)}
    made = arguments([floats(10, 8), floats(3, 8)], [floats(8, 5)], kwargs=kwargs, api="NPU.npu_grouped_matmul")
    assert ends(made.kwargs["group_list"].array) == (2, 9)
