"""Peak memory per rank, as the console says it."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.predict import RankMemory, StepPrediction
from gnnperf.report.page.markup import Markup, Td, paragraph, rank_td, signed_share_td, table, text_td
from gnnperf.report.text import UNKNOWN, bytes_text, fit_lines, memory_lines

BESIDE = ("counted as recorded", "measured", "error")


def peak_memory(answer: StepPrediction) -> Markup:
    """One row per rank: the peak, at which op, of what it is made; then whether it fits."""
    parts = list(dict.fromkeys(str(part) for rank in answer.peak_memory for part in rank.peak.parts_bytes))
    used = [part for part in parts if any(_of(rank, part) for rank in answer.peak_memory)]
    names = (part.replace("_", " ") for part in used)
    heads = ("rank", "peak", *names, "DDP's buckets", "at", *BESIDE)
    rows = [(*_sizes(rank, used), text_td(rank.peak.at or UNKNOWN), *_compared(rank)) for rank in answer.peak_memory]
    sentences = fit_lines(answer.peak_memory, answer.hardware)
    edited = [line for line in memory_lines(answer) if line.startswith("what if")]
    unknown = () if any(rank.measured for rank in answer.peak_memory) else BESIDE
    return Markup(f"{table('Peak memory', heads, rows, unknown)}{''.join(map(paragraph, [*sentences, *edited]))}")


def _sizes(rank: RankMemory, parts: Sequence[str]) -> tuple[Td, ...]:
    peak = rank.peak
    made_of = (_of(rank, part) for part in parts)
    return rank_td(peak.rank), *map(_size, (peak.peak_bytes, *made_of, peak.buckets_bytes))


def _of(rank: RankMemory, part: str) -> int:
    return next((n for name, n in rank.peak.parts_bytes.items() if str(name) == part), 0)


def _size(num_bytes: int) -> Td:
    return Td(bytes_text(num_bytes), float(num_bytes))


def _compared(rank: RankMemory) -> tuple[Td, Td, Td]:
    if rank.measured is None or rank.error is None:
        return Td("-"), Td("-"), Td("-")
    return _size(rank.measured.counted_bytes(rank.peak)), _size(rank.measured.peak_bytes), signed_share_td(rank.error)
