"""The columns of msprobe's accuracy_checking_details files, and which measure each one holds."""

from __future__ import annotations

from collections.abc import Mapping

BLANK = " "
# What a cell says of a verdict. An API's row has two; of several outputs, and of several items, the worst counts: SKIP
# only where all skip.
STATUSES = ("SKIP", "pass", "warning", "error")
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
# Columns that msprobe fills where its tables choose the rule, and leaves blank elsewhere: its comparison goes by that.
OF_RULE: Mapping[str, tuple[str, ...]] = {
    "absolute_threshold": ("inf/nan错误率", "相对误差错误率", "绝对误差错误率"),
    "accumulative": ("inf/nan错误率", "相对误差错误率", "绝对误差错误率"),
    "ulp": ("ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比"),
    "binary": ("二进制一致错误率",),
}
DETAILS = (NAME, BENCH, DEVICE, SHAPE, *MEASURED, STATUS, MESSAGE)
RESULT = ("API name", "Forward Test Success", "Backward Test Success", MESSAGE)

# api_precision_compare_details: of each rule, the metric (or ratio) and the cells that it fills.
RATIOS: Mapping[str, tuple[str, str]] = {
    "small_value_error_ratio": ("小值域错误比值", "小值域判定结果"),
    "rmse": ("均方根误差比值", "均方根误差判定结果"),
    "max_rel_error": ("相对误差最大值比值", "相对误差最大值判定结果"),
    "mean_rel_error": ("相对误差平均值比值", "相对误差平均值判定结果"),
    "error_balance": ("误差均衡性比值", "误差均衡性判定结果"),
}
ABSOLUTE: Mapping[str, tuple[str, str]] = {
    "inf_nan_error_ratio": ("inf/nan错误率", "inf/nan判定结果"),
    "rel_error_ratio": ("相对误差错误率", "相对误差判定结果"),
    "abs_error_ratio": ("绝对误差错误率", "绝对误差判定结果"),
}
BINARY = ("二进制一致错误率", "二进制一致错误率判定结果")
ULP = ("ULP误差平均值", "ULP误差大于阈值占比", "ULP误差大于阈值占比比值", "ULP误差判定结果")
THOUSANDTH = ("双千指标", "双千指标判定结果")
OUTCOME, ALGORITHM = "比对结果", "比对算法"
ALGORITHMS: Mapping[str, str] = {
    "benchmark": "标杆比对法",
    "binary": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "ulp": "ULP误差比对法",
    "thousandth": "双千指标法",
    "accumulative": "累积误差比对法",
}
COMPARE_DETAILS = (
    NAME,
    *(cell for pair in RATIOS.values() for cell in pair),
    *(cell for pair in ABSOLUTE.values() for cell in pair),
    *BINARY,
    *ULP,
    *THOUSANDTH,
    OUTCOME,
    ALGORITHM,
    MESSAGE,
)
COMPARE_RESULT = (NAME, "Forward Test Success", "Backward Test Success", MESSAGE)


def status_of(verdict: str) -> str:
    return "SKIP" if verdict == "skip" else verdict
