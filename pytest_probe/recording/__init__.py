"""A capture's steps, configuration, snapshots, statistics and writer; it knows no framework.

In: what a framework's recorder saw of each call. Out: a dump that is whole after every write.
"""
