"""--probe-cluster: cases run on the devices of a Ray cluster.

The process that the user started collects as a run without it does, deals the cases out into shards, and reports. Each
shard is a task of Ray's, which chooses the node and waits for a device. What a lost task has left runs in others. In a
task pytest-xdist has one worker, which runs the cases: one that dies is replaced as under -n.
"""
