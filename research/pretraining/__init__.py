"""Op tables train the network that traces train: their rows become isolated nodes, what was timed is distinguished."""
