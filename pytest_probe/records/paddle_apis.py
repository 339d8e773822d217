"""Which of Paddle's APIs give no gradient, whatever they are given: its tools record no outputs that would tell.

What is not named here is run, and says itself where nothing can be differentiated.
"""

from __future__ import annotations

import re
from typing import Any

# By the last part of the name: what gives booleans, integers, shapes or numbers of Python's, nothing, or constants.
_NO_GRADIENT = frozenset(
    "equal not_equal less less_than less_equal greater greater_than greater_equal equal_all allclose isclose "
    "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert "
    "isnan isinf isfinite isneginf isposinf isreal isin is_empty is_tensor is_complex is_floating_point is_integer "
    "argmax argmin argsort searchsorted bucketize nonzero count_nonzero any all numel shape rank matrix_rank signbit "
    "unique unique_consecutive floor_divide __floordiv__ nextafter standard_gamma poisson binomial "
    "nms matrix_nms generate_proposals distribute_fpn_proposals histogram_bin_edges histogram histogramdd bincount "
    "item tolist numpy dim ndimension size element_size detach "
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like bernoulli multinomial "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __nonzero__ __int__ __float__ __index__ __len__ "
    "__setitem__".split()
)
_CASTS = ("astype", "cast", "to")
# A dtype that an argument names; a tensor's own stands in other places, or under other names.
_NO_FLOAT = re.compile(rb'["(.](?:u?int\d*|bool_?)["\s)]')


def has_gradient(api: str, entry: Any) -> bool:
    """May a call of this API with a floating argument have a gradient? entry is the bytes that describe the call."""
    name = api.rpartition(".")[2]
    return name not in _NO_GRADIENT and not (name in _CASTS and bool(_NO_FLOAT.search(entry)))
