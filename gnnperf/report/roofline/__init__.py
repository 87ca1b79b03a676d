"""Op families on the roofs of a device, and what sparsity can gain. `gnnperf roofline`, `gnnperf sparsity-roofline`."""
