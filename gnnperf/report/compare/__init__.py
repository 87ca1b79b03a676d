"""Two answers about a step, or an answer and a measurement: what changed, as a waterfall. `gnnperf compare A B`."""
