"""PaddlePaddle: the parameters of its optimizers' steps, in their order. Paddle is not imported."""

from __future__ import annotations

from collections.abc import Mapping

_ADAM = "param grad lr moment1 moment2 moment2_max beta1_pow beta2_pow master_param skip_update beta1 beta2 eps"
_ADAM_FLAGS = "lazy_mode min_row_size multi_precision use_global_beta_pow amsgrad"
_MERGED_ADAM = _ADAM.replace("skip_update ", "") + " multi_precision use_global_beta_pow amsgrad"
_MOMENTUM = "param grad velocity lr master_param mu use_nesterov regularization_method regularization_coeff"
# By the names of operators canonical names, as in signatures.SIGNATURES.
OPTIMIZERS: Mapping[str, str] = {
    "_C_ops.adam_": f"{_ADAM} {_ADAM_FLAGS}",
    "_C_ops.adamw_": f"{_ADAM} lr_ratio coeff with_decay {_ADAM_FLAGS}",
    "_C_ops.merged_adam_": _MERGED_ADAM,
    **dict.fromkeys(("_C_ops.momentum_", "_C_ops.merged_momentum_"), f"{_MOMENTUM} multi_precision rescale_grad"),
    "_C_ops.lamb_": "param grad lr moment1 moment2 beta1_pow beta2_pow master_param skip_update weight_decay beta1 "
    "beta2 eps always_adapt multi_precision",
    "_C_ops.nadam_": "param grad lr momentum_decay_pow beta2_pow mu_product moment1 moment2 master_param beta1 beta2 "
    "eps momentum_decay multi_precision",
    "_C_ops.radam_": "param grad lr beta1_pow beta2_pow rho moment1 moment2 master_param beta1 beta2 eps "
    "multi_precision",
    "_C_ops.adamax_": "param grad lr moment inf_norm beta1_pow master_param beta1 beta2 eps multi_precision",
    "_C_ops.adagrad_": "param grad moment lr master_param eps multi_precision",
    "_C_ops.adadelta_": "param grad avg_squared_grad avg_squared_update lr master_param rho eps multi_precision",
    "_C_ops.rmsprop_": "param mean_square grad velocity lr mean_grad master_param eps decay momentum centered "
    "multi_precision",
    "_C_ops.rprop_": "param grad previous rates master_param range etas multi_precision",
    "_C_ops.asgd_": "param grad lr average oldest count master_param multi_precision",
    "_C_ops.sgd_": "param lr grad master_param multi_precision",
}
