"""What is timed, and against whom: one module per section of BENCHMARKS.md, each prints the section's table."""
