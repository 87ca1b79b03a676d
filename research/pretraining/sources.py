"""Op tables that weights which ship may be trained on: merged files under a plain MIT, BSD or Apache-2.0 license."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.trace.public.catalog import Entry, load_catalog
from research.tables import OpTable, aiconfigurator, joined, neusight, read_aiconfigurator, read_neusight

PLAIN_LICENSES = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0")  # the catalog adds words where there is more
OP_TABLE = "op-table"
READERS: tuple[tuple[str, Callable[[Path], OpTable]], ...] = (
    (aiconfigurator.SOURCE, read_aiconfigurator),
    (neusight.SOURCE, read_neusight),
)


@dataclass(frozen=True)
class Source:
    """One repository.

    Attributes:
        repo: owner/name.
        license: of its op tables.
        commits: that they were published in.
        files: how many.
    """

    repo: str
    license: str
    commits: tuple[str, ...]
    files: int


def sources(entries: Iterable[Entry] | None = None) -> tuple[Source, ...]:
    """The repositories that ship with the weights, as the catalog of public files has them."""
    every = list(load_catalog() if entries is None else entries)
    return tuple(_source(repo, [e for e in every if e.repo == repo and e.kind == OP_TABLE]) for repo, _ in READERS)


def read_sources(mirror: Path) -> OpTable:
    """Their op tables."""
    result = joined(read(mirror) for _, read in READERS)
    if result.rows.empty:
        raise InputError("no op tables", where=str(mirror), remedy="gnnperf data fetch --kind op-table")
    return result


def _source(repo: str, entries: list[Entry]) -> Source:
    licenses = sorted({entry.license for entry in entries})
    if len(licenses) != 1 or licenses[0] not in PLAIN_LICENSES:
        raise InputError(f"license {', '.join(licenses) or 'unknown'} of {repo}", where="weights that ship",
                         allowed=", ".join(PLAIN_LICENSES))  # fmt: skip
    return Source(repo, licenses[0], tuple(sorted({e.commit for e in entries if e.commit})), len(entries))
