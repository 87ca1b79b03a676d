"""`gnnperf search`: the division of a plan's model over devices that has the shortest step or the least cost."""
