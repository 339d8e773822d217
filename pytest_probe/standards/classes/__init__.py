"""APIs for which a small error is no measure: what they choose, order, draw, factor or only move. One file a class.

In: one comparison of an API that classes.yaml lists. Out: its verdict, or None where the class has none to give.
"""
