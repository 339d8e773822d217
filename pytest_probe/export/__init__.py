"""Files in the columns of other tools, and all files that are made from results: each table is data, and is written, or
read back, by its columns.

In: results, outputs of two devices, another tool's file. Out: lines of CSV files, and what two sides' files say of one
another.
"""
