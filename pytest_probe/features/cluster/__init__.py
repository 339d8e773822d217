"""--probe-cluster: cases run on the devices of a Ray cluster.

The controller collects as a run without it does, and deals the cases out into shards. Each is a task of Ray's, which
chooses the node and waits for a device; the controller submits again what a lost one has left. A task keeps one
process, in which pytest runs the items; it reports how that process died, and starts another.
"""
