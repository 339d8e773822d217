"""The columns of msprobe's accuracy_checking_details files, and which measure each one holds."""

from __future__ import annotations

from collections.abc import Mapping

BLANK = " "
NAME, BENCH, DEVICE, SHAPE, STATUS, MESSAGE = "API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "Status", "Message"
COSINE = "余弦相似度"
# Column: field of numerics.measures.Measures. The cosine itself is 1 minus cosine_distance.
MEASURED: Mapping[str, str] = {
    COSINE: "cosine_distance",
    "最大绝对误差": "max_abs_error",
    "双百指标": "hundredth_ratio",
    "双千指标": "thousandth_ratio",
    "双万指标": "ten_thousandth_ratio",
    "二进制一致错误率": "binary_mismatch_ratio",
    "误差均衡性": "error_balance",
    "均方根误差": "rmse",
    "小值域错误占比": "small_value_error_ratio",
    "相对误差最大值": "max_rel_error",
    "相对误差平均值": "mean_rel_error",
    "inf/nan错误率": "inf_nan_error_ratio",
    "相对误差错误率": "rel_error_ratio",
    "绝对误差错误率": "abs_error_ratio",
    "ULP误差最大值": "ulp_max",
    "ULP误差平均值": "ulp_mean",
    "ULP误差大于阈值占比": "ulp_over_ratio",
}
DETAILS = (NAME, BENCH, DEVICE, SHAPE, *MEASURED, STATUS, MESSAGE)
RESULT = ("API name", "Forward Test Success", "Backward Test Success", MESSAGE)
