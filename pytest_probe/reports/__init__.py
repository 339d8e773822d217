"""What a run says and leaves: the terminal's text, junit's properties, the results file, the tally.

In: results. Out: text and files. Nothing here runs or judges a case.
"""
