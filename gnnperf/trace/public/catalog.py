"""The shipped catalog: one entry per public file, with where it comes from and what its bytes must be."""

import csv
import difflib
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import msgspec

from gnnperf.core import InputError, untrusted

CATALOG = Path(__file__).parent / "catalog.csv.gz"


@dataclass(frozen=True)
class Entry:
    """One public file. None: the catalog does not know."""

    name: str  # unique; also the path of the file below a mirror or a fetch folder
    kind: str  # kineto, execution-trace, archive, op-table, collective-table, step-table, ...
    run: str | None  # the recording the file belongs to; None for tables
    repo: str  # owner/name of the GitHub repository
    commit: str | None  # the commit the bytes were published in; None: they can only come from a mirror
    path: str  # path inside the repository
    size_bytes: int  # size of the mirrored file
    sha256: str  # of the bytes upstream
    mirror_sha256: str  # of the mirrored bytes (the same unless re-compressed or scrubbed)
    license: str  # license of the repository, and what is special about this file
    gpu: str | None  # device name
    rank: int | None  # rank of the run
    world_size: int | None  # ranks of the run, traced or not
    steps: int | None  # whole steps in the file
    with_shapes: str | None  # "yes" or "no": whether ops carry their input shapes
    scrubbed: str | None  # what the mirror removed, e.g. "environment removed"
    note: str | None  # what was measured

    @property
    def recompressed(self) -> bool:
        """Whether the file is kept gzipped although upstream publishes it plain."""
        return self.name.endswith(".gz") and not self.path.endswith((".gz", ".tgz"))


COLUMNS = tuple(f.name for f in fields(Entry))


def load_catalog(path: Path = CATALOG) -> tuple[Entry, ...]:
    """Read a catalog (gzipped CSV with the fields of `Entry`); refuses names that point outside of its folder."""
    with (
        untrusted.reading(path, "cannot read the catalog"),
        gzip.open(path, "rt", encoding="utf-8", newline="") as file,
    ):
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError("not a catalog of public files", where=str(path), allowed=", ".join(COLUMNS))
        return tuple(_entry(row) for row in reader)


def _entry(row: dict[str, str]) -> Entry:
    """One row; an empty cell is None, an empty `mirror_sha256` means the bytes are those of upstream."""
    parts = PurePosixPath(row["name"]).parts
    if not parts or ".." in parts or PurePosixPath(row["name"]).is_absolute():
        raise InputError(f"name {row['name']!r} points outside of its folder", where="catalog")
    cells = {key: value or None for key, value in row.items()}
    return msgspec.convert(cells | {"mirror_sha256": row["mirror_sha256"] or row["sha256"]}, Entry, strict=False)


def select(
    entries: Sequence[Entry], *, names: Sequence[str] = (), runs: Sequence[str] = (), kinds: Sequence[str] = ()
) -> tuple[Entry, ...]:
    """Entries that match one of the names or runs (all, if neither is given) and one of the kinds (if given).

    A name may be the whole name, its last part, or a pattern with * and ?; a run or kind may be a pattern, too.
    """
    named = [_matching(entries, n, "file", lambda e: (e.name, PurePosixPath(e.name).name)) for n in names]
    in_run = [_matching(entries, r, "run", lambda e: (e.run,) if e.run else ()) for r in runs]
    chosen = set().union(*named, *in_run) if names or runs else set(entries)
    if kinds:
        of_kind = [_matching(entries, k, "kind", lambda e: (e.kind,)) for k in kinds]
        chosen &= set().union(*of_kind)
    return tuple(e for e in entries if e in chosen)


def _matching(
    entries: Sequence[Entry], requested: str, what: str, labels: Callable[[Entry], Sequence[str]]
) -> set[Entry]:
    """Entries one of whose labels is, or fits the pattern, `requested`."""
    result = {e for e in entries if any(label == requested or fnmatchcase(label, requested) for label in labels(e))}
    if result:
        return result
    known = sorted({label for e in entries for label in labels(e)})
    near = difflib.get_close_matches(requested, known, n=5, cutoff=0.3) or known[:5]
    allowed = f"a {what} or pattern, such as {', '.join(near)}"
    raise InputError(f"no {what} {requested!r} in the catalog of public data", allowed=allowed,
                     remedy="see `gnnperf data list`")  # fmt: skip
