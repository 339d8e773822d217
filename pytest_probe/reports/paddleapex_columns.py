"""The files of times and memory that PaddleAPEX's comparisons write: their names and columns."""

from __future__ import annotations

TIMES, MEMORY, SUMMARY = "prof_checking_result.csv", "memory_checking_result.csv", "prof_summary.csv"
TIME_COLUMNS = (
    "API Name",
    "dtype",
    "input shape",
    "output shape",
    "direction",
    "Bench Time(us)",
    "Device Time(us)",
    "Device/Bench Time Ratio",
)
MEMORY_COLUMNS = ("API Name", "Bench Memory Usage (B)", "Device Memory Usage (B)", "Memory Difference")
STATUS = "Acc_status"
# A time that nobody knows, and a verdict that nobody gave.
UNKNOWN, NOT_JUDGED = -1, "N/A"
