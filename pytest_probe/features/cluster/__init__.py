"""--probe-cluster: cases run on the devices of a Ray cluster.

The process that the user started collects as a run without it does, deals the cases out into shards, and reports. Each
shard is a task of Ray's, which chooses the node, waits for a device, and runs the task again if its node is lost. In a
task pytest-xdist has one worker, which runs the cases: one that dies is replaced as under -n.
"""
