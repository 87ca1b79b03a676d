"""Public measurements: a shipped catalog of what to fetch, and the code that fetches and verifies it."""

from gnnperf.trace.public.catalog import Entry, load_catalog, select
from gnnperf.trace.public.fetch import Origin, fetch

__all__ = ["Entry", "Origin", "fetch", "load_catalog", "select"]
