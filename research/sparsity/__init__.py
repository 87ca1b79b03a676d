"""What a sparse weight can gain on a layer, by pattern: `gnnperf sparsity-roofline`."""
