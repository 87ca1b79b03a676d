"""Op tables predicted by the analytical model: `gnnperf ops predict`."""
