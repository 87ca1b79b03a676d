"""What the server that forks ranks loads once, instead of every rank."""

from gnnperf.record import launcher

launcher.PRELOADED += ["tests.ranks_server", "tests.research.recording.workloads.parallel_checks"]
