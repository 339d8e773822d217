"""--probe-cluster: cases run on the devices of a cluster.

The controller collects as a run without it does, and sends cases to hosts, one a device. A host keeps one process, in
which pytest runs the items; it reports how that process died, and starts another.
"""
