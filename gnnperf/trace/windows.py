"""A Kineto file that memory cannot hold -> files of some steps each, in three passes over its text.

pass 1   text                  when each step begins, and how many bytes of text there are: steps per window
pass 2   text -> begins        the correlations of the calls in each window; they count up, so they are a range
pass 3   text -> events        host events by their begin, device work by the call that launches it, else by its begin

Nothing is kept per event; a pass holds one block of text. Files of windows are packed. What no reader looks at (Python
calls, metadata) is left out.
"""

import io
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from isal import igzip
from msgspec import Raw

from gnnperf.core import InputError, task, untrusted
from gnnperf.trace.kineto import BETWEEN, EVENTS_KEY, FLOW, HEAD_FIELDS, KINDS, LAUNCHES, STEP_MARK, Head, Stamp
from gnnperf.trace.trace_sources import GZIP_MAGIC

BLOCK_BYTES = 4 * 2**20
MAX_TEXT_BYTES = 64 * 2**30  # of one file, unpacked
MEMORY_PER_BYTE = 4.0  # of a window's text: its tables and its graph while they are made
PACKED_RATIO = 12  # of Kineto files, about
MARK_BYTES = 1024  # a mark is shorter, so that it is whole in one of two texts that overlap by so much
FIRST = b'{"traceEvents":[{}'  # of the text of a window: an event that no reader looks at
READ = frozenset([*KINDS, FLOW])
REMEDY = "record fewer steps, with profiler.step() after each, or import on a machine with more memory"


@dataclass(frozen=True)
class Window:
    """Steps in a row, and the file with their events."""

    steps: range  # numbers of step marks
    file: Path


def windowed(path: Path, budget_bytes: float) -> bool:
    """Whether a trace is a file, plain or gzipped, whose text is too large to be read as a whole."""
    with untrusted.reading(path):
        if not path.is_file() or not path.name.lower().endswith((".json", ".json.gz")):
            return False
        with path.open("rb") as file:
            is_packed = file.read(2) == GZIP_MAGIC
    return MEMORY_PER_BYTE * (PACKED_RATIO if is_packed else 1) * path.stat().st_size > budget_bytes


def of_steps(text: bytes, steps: range) -> bytes:
    """The text of a Kineto file with the events of some steps only; as it is, if none is marked or it cannot be cut."""
    begins = {number: begin for begin, number in sorted(_marks(text), reverse=True)}
    chosen = [begin for number, begin in begins.items() if number in steps]
    later = [begin for begin in begins.values() if chosen and begin > max(chosen)]
    parts: list[bytes] = []
    try:
        span = min(chosen), min(later, default=float("inf"))
        launches = _launches(_blocks(io.BytesIO(text)), [span])
        end = _route(_blocks(io.BytesIO(text)), [span], launches, lambda at, events: parts.append(events))
    except (msgspec.DecodeError, ValueError):
        return text
    return b"".join((FIRST, *parts, end))


def _marks(text: bytes) -> list[tuple[float, int]]:
    return [(float(begin), int(number)) for number, begin in STEP_MARK.findall(text)]


def split(path: Path, folder: Path, budget_bytes: float, steps: range | None = None) -> list[Window]:
    """Files of some steps each into `folder`, in order.

    Args:
        path: a Kineto file, plain or gzipped.
        folder: empty.
        budget_bytes: memory that importing one of them may take.
        steps: only these; None: all.

    Raises:
        InputError: no step is marked, a step is too large, or the text cannot be cut between events.
    """
    begins, num_bytes = _scan(path)
    numbers = sorted(number for number in begins if steps is None or number in steps)
    if not numbers:
        raise InputError("is larger than memory and marks none of these steps", where=str(path), remedy=REMEDY)
    per_window = int(budget_bytes / (MEMORY_PER_BYTE * num_bytes / len(begins)))
    if per_window < 1:
        need = f"{MEMORY_PER_BYTE * num_bytes / len(begins) / untrusted.MIB:,.0f} MiB"
        raise InputError(f"has steps that take about {need} each", where=str(path), remedy=REMEDY,
                         allowed=f"{budget_bytes / untrusted.MIB:,.0f} MiB")  # fmt: skip
    parts = [numbers[at : at + per_window] for at in range(0, len(numbers), per_window)]
    ordered = sorted(begins.values())
    following = dict(zip(ordered, [*ordered[1:], float("inf")], strict=True))
    spans = [(begins[part[0]], following[begins[part[-1]]]) for part in parts]
    files = [folder / f"steps_{part[0]}-{part[-1]}" / path.name.removesuffix(".gz").replace(".json", ".json.gz")
             for part in parts]  # fmt: skip
    with untrusted.reading(path, "cannot be split"), ExitStack() as stack:
        writers = []
        for file in files:
            file.parent.mkdir()
            writers.append(stack.enter_context(igzip.open(file, "wb", compresslevel=0)))
            writers[-1].write(FIRST)
        advance = stack.enter_context(task(f"splitting {path.name}", 2 * num_bytes, "B"))
        with _text(path) as text:
            launches = _launches(_blocks(text, advance), spans)
        with _text(path) as text:
            end = _route(_blocks(text, advance), spans, launches, lambda at, events: writers[at].write(events))
        for writer in writers:
            writer.write(end)
    return [Window(range(part[0], part[-1] + 1), file) for part, file in zip(parts, files, strict=True)]


def _text(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP_MAGIC
    return igzip.open(path, "rb") if is_packed else path.open("rb")  # type: ignore[return-value]


def _scan(path: Path) -> tuple[dict[int, float], int]:
    """When each step begins, us, by its number; and the bytes of text."""
    begins: dict[int, float] = {}
    num_bytes, packed, before = 0, path.stat().st_size, b""
    with (
        untrusted.reading(path),
        _text(path) as text,
        task(f"looking for steps in {path.name}", packed, "B") as advance,
    ):
        while block := text.read(BLOCK_BYTES):
            for begin, number in _marks(before + block):
                begins[number] = min(begin, begins.get(number, begin))
            num_bytes, before = num_bytes + len(block), block[-MARK_BYTES:]
            if num_bytes > MAX_TEXT_BYTES or untrusted.is_bomb(num_bytes, packed):
                raise InputError(f"holds more than {num_bytes:,} bytes", where=str(path), remedy="record fewer steps",
                                 allowed=f"{MAX_TEXT_BYTES:,} bytes")  # fmt: skip
            advance(len(block) * packed / max(num_bytes, packed))
    return begins, num_bytes


def _blocks(text: IO[bytes], advance: Callable[[float], None] = lambda amount: None) -> Iterator[tuple[Head, Raw]]:
    """Whole events, a list of some megabytes at a time, and what the text around them states."""
    rest, prefix = b"", b""  # text that is not yet cut; what makes the events of a block an object
    while block := text.read(BLOCK_BYTES):
        rest += block
        advance(len(block))
        if not prefix:
            start = EVENTS_KEY.search(rest)
            if start is None:
                continue
            yield msgspec.json.decode(rest[: start.end()] + b"]}", type=Head), Raw(b"[]")
            prefix, rest = b'{"traceEvents":[', rest[start.end() :]
        cut = max(BETWEEN.finditer(rest, max(len(rest) - 2**16, 0)), key=re.Match.start, default=None)
        if cut is not None:
            yield Head(), Raw(b"[" + rest[: cut.start() + 1] + b"]")
            rest = rest[cut.end() :]
        if len(rest) > 4 * BLOCK_BYTES:
            raise ValueError("the text cannot be cut between events")
    end = msgspec.json.decode(prefix + rest, type=Head)
    yield end, end.traceEvents


_raw, _stamps = msgspec.json.Decoder(list[Raw]), msgspec.json.Decoder(list[Stamp], strict=False)


Span = tuple[float, float]  # begin and end, us
Launches = list[tuple[float, float]]  # of each span, the smallest and the largest correlation of its calls


def _launches(blocks: Iterator[tuple[Head, Raw]], spans: Sequence[Span]) -> Launches:
    begins = [begin for begin, _ in spans]
    result: Launches = [(float("inf"), -1.0)] * len(spans)
    for _, events in blocks:
        for stamp in _stamps.decode(events):
            if stamp.cat in LAUNCHES and stamp.ts is not None and (correlation := _correlation(stamp)) > 0:
                at = bisect_right(begins, stamp.ts) - 1
                if at >= 0 and stamp.ts < spans[at][1]:
                    first, last = result[at]
                    result[at] = min(first, correlation), max(last, correlation)
    return result


def _correlation(stamp: Stamp) -> int:
    return (stamp.args and stamp.args.correlation) or 0


def _route(
    blocks: Iterator[tuple[Head, Raw]], spans: Sequence[Span], launches: Launches, write: Callable[[int, bytes], object]
) -> bytes:
    """Give the events of each span to `write`, as text that follows an event; the end of such a text."""
    begins, with_calls = [begin for begin, _ in spans], [at for at, (_, last) in enumerate(launches) if last > 0]
    firsts = [launches[at][0] for at in with_calls]
    stated: dict[str, bytes] = {}
    for head, events in blocks:
        stated |= {name: bytes(raw) for name in HEAD_FIELDS if bytes(raw := getattr(head, name))}
        of_window: dict[int, list[Raw]] = {}
        for raw, stamp in zip(_raw.decode(events), _stamps.decode(events), strict=True):
            if stamp.cat not in READ or stamp.ts is None:
                continue
            at = bisect_right(begins, stamp.ts) - 1
            is_inside = at >= 0 and stamp.ts < spans[at][1]
            correlation = 0 if stamp.cat in LAUNCHES else _correlation(stamp)
            call = bisect_right(firsts, correlation) - 1 if correlation > 0 else -1
            if call >= 0 and correlation <= launches[with_calls[call]][1]:
                at, is_inside = with_calls[call], True
            if is_inside:
                of_window.setdefault(at, []).append(raw)
        for at, raws in of_window.items():
            write(at, b"".join(b"," + bytes(raw) for raw in raws))
    return b"]" + b"".join(b',"%s":%s' % (name.encode(), raw) for name, raw in stated.items()) + b"}"
