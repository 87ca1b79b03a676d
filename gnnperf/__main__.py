"""`python -m gnnperf`: the same as the `gnnperf` command."""

import sys

from gnnperf.cli import main

sys.exit(main())
