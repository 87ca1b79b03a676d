"""Results of benchmarks."""

saving = False
