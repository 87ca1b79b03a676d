"""Op families of a step on the roofs of its device: `gnnperf roofline`."""
