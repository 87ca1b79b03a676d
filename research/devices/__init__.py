"""The catalog of hardware, with the measurements behind answers for each device: `gnnperf devices`."""
