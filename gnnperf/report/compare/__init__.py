"""Two predictions of a step, or a prediction and a measurement: what changed, as a waterfall. `gnnperf compare A B`."""
