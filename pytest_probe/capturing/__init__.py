"""What a program imports to record its own calls, as msprobe's PrecisionDebugger is used.

In: a configuration and a running program. Out: a dump's files, by recording/ and the framework's recorder.
"""
