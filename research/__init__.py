"""What the figures come from: benchmarks, not part of the installed package."""
