"""The dumps of the api_accuracy_checker of 2023, from which msprobe's checker comes.

In: forward_info_0.json with backward_info_0.json, stack_info_0.json and folders of tensors beside it. Out: a `Dump` of
undecoded records, and each as a `Call`.
"""
