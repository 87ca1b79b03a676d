"""What is scanned equals what is decoded; anything else is given up."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.trace import assembly, kineto, scanner
from gnnperf.trace.columns import lane_column
from gnnperf.trace.words import FULL, SLACK_BYTES, Words, number_of

TAIL = b"," + json.dumps({"ph": "M", "name": "process_name"}).encode()
NUMBER = st.one_of(st.none(), st.integers(-9, 2**40), st.sampled_from([2**64 - 1, 10**17, -(2**31)]))
TIME = st.one_of(st.integers(0, 2 * 10**15), st.integers(0, 10**12).map(lambda ns: ns / 1000), st.none())
TEXT = st.sampled_from(["aten::mm", "", 'a "quoted" \\ name', "ünï", "a" * 300])
LISTS = st.sampled_from([[[8, 4], []], [], [[], [["x, ]", 2]]], None, "text", 7.5])
ARGUMENTS = st.fixed_dictionaries({}, optional={
    **dict.fromkeys(["External id", "external id", "correlation", "device", "stream", "Sequence number", "Ev Idx",
                     "Fwd thread id", "wait_on_stream", "Collective name ", "Trace iteration"], NUMBER),
    **dict.fromkeys(["Input Dims", "Input type", "Concrete Inputs", "grid", "block", "registers per thread",
                     "Call stack", "est. achieved occupancy %"], LISTS),
    "bytes": st.one_of(st.none(), st.integers(0, 2**50)), "size": st.integers(0, 9),
    "Collective name": st.sampled_from(["allreduce", None]), "In msg nelems": st.integers(0, 9),
})  # fmt: skip
EVENTS = st.lists(st.fixed_dictionaries({"ph": st.sampled_from(["X", "X", "s", "i"])}, optional={
    "cat": st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "gpu_memcpy", "cuda_sync", "fwdbwd", "other", None]),
    "name": TEXT, "ts": TIME, "dur": TIME, "pid": NUMBER, "tid": NUMBER, "id": st.integers(0, 99),
    "args": st.one_of(st.none(), ARGUMENTS),
}), max_size=6)  # fmt: skip


def _read(stretches: Iterator[Any]) -> tuple[dict[str, list[Any]], object]:
    """What each column states, with values in place of their codes."""
    parts = assembly.Parts()
    for events in stretches:
        assembly.add(parts, assembly.Structs.of(events) if isinstance(events, list) else events)
    columns = {name: assembly._stacked(parts.columns, name) for name in assembly.COLUMNS} if parts.columns else {}
    values: dict[str, list[Any]] = {name: np.nan_to_num(column, nan=-1.0).tolist() for name, column in columns.items()}
    for name, codes in parts.codes().items():
        values |= {name: [codes.uniques()[code] or -1 if code >= 0 else -1 for code in values.get(name, [])]}
    lanes = lane_column([f[2] for f in parts.flows]).tolist()
    flows = [(*f[:2], lane, f[3]) for f, lane in zip(parts.flows, lanes, strict=True)]
    return values, (parts.metadata, flows, parts.size)


def _scan(text: bytes) -> Any:
    return scanner.Scanner(text + TAIL).scanned(0, len(text))


@given(EVENTS, st.sampled_from([None, 1]))
def test_scanned_events_have_the_columns_of_decoded_ones(events: list[dict[str, Any]], indent: int | None) -> None:
    text = b",".join(json.dumps(event, indent=indent, ensure_ascii=False).encode() for event in events)
    scanned = _scan(text)
    assert scanned is not None
    decoded = kineto.Reader(b"", "")._events(b"[" + text + b"]")
    assert _read(iter([scanned])) == _read(iter([decoded]))


BREAKS = [b"", b"null", b"NaN", *(bytes([byte]) for byte in b'"\\{}[],:9-.e\x00\xff')]


@given(EVENTS.filter(bool), st.integers(0, 4000), st.integers(0, 3), st.sampled_from(BREAKS))
def test_a_broken_text_is_given_up_or_has_the_columns_of_what_is_decoded(
    events: list[dict[str, Any]], place: int, removed: int, put: bytes
) -> None:
    text = b",".join(json.dumps(event).encode() for event in events)
    at = place % len(text)
    broken = text[:at] + put + text[at + removed :]
    scanned = _scan(broken)
    if scanned is not None:
        try:
            expected = _read(iter([kineto.Reader(b"", "")._events(b"[" + broken + b"]")]))
            assert _read(iter([scanned])) == expected
        except (msgspec.DecodeError, UnicodeDecodeError):  # broken where nothing is read, or in a name
            pass


KERNEL = '{"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 1, "args": {"stream": 7}}'


def test_the_event_that_the_next_test_changes_is_scanned() -> None:
    assert _scan(KERNEL.encode()).times()[0].tolist() == [1000]


@pytest.mark.parametrize(("before", "after"), [
    ('"ts": 1', '"ts": 1e3'), ('"ts": 1', '"ts": "1"'), ('"ts": 1', '"ts": 1.0004'), ('"ts": 1', '"ts": nan'),
    ('"ts": 1', '"ts": 99999999999999999'), ('"ts": 1', '"ts": 9999999999999999'), ('"ts": 1', '"ts": -'),
    ('"ts": 1', '"ts": 1, "ts": 2'), ('"ts": 1', '"dur": [1]'), ('"ts": 1', '"dur": true'), ('"ts": 1', '"new": +1'),
    ('"tid": 7', '"tid": "stream 7"'), ('"stream": 7', '"stream": 7.0'), ('"stream": 7', '"bytes": -1'),
    ('"stream": 7', '"stream": 1234567890123456789'), ('"stream": 7', '"stream": 7 8'), ('"stream": 7', '"new": nul'),
    ('"name": "k"', '"name": null'), ('"name": "k"', '"name": "\n"'), ('"name": "k"', '"name": "k'),
    ('"cat": "kernel"', '"cat": "mtia_ccp_events"'), ("}}", "}"), ("}}", "},}"), ("}}", "}}}"), ("}}", "}},7"),
])  # fmt: skip
def test_what_profilers_rarely_write_is_given_up(before: str, after: str) -> None:
    assert before in KERNEL
    assert _scan(KERNEL.replace(before, after).encode()) is None


def test_names_and_texts_without_end_are_numbered() -> None:
    """More and longer ones than there was room for, each twice."""
    names = [f"op {k % 3000} " + "x" * (k % 3000) for k in range(6000)]
    text = b",".join(json.dumps({"ph": "X", "cat": "cpu_op", "name": name}).encode() for name in names)
    parts = assembly.Parts()
    assembly.add(parts, _scan(text))
    assert [parts.names.uniques()[code] for code in parts.columns[0]["name"]] == names


def test_a_text_with_more_words_than_there_may_be_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "MOST_WORDS", 2048)
    few, many = (b",".join(b'{"ph": "X", "cat": "cpu_op", "name": "%d"}' % k for k in range(n)) for n in (2048, 2049))
    assert len(_scan(few).kind) == 2048
    assert _scan(many) is None


@given(st.lists(st.binary(max_size=30), max_size=40))
def test_a_word_has_one_number_in_the_order_of_first_appearance(texts: list[bytes]) -> None:
    words = Words(2, most=4, num_bytes=64)
    for text in texts:
        padded = np.frombuffer(text + bytes(SLACK_BYTES), np.uint8)
        while (number := number_of(padded, 0, len(text), 1, words.words, words.arena)) == FULL:
            words.grow()
        assert words.word(1, number) == text
    listed = list(dict.fromkeys(texts))
    assert [words.word(1, number) for number in range(int(words.words[1, 0]))] == listed and words.words[0, 0] == 0


def test_of_a_long_text_only_few_events_at_its_ends_are_decoded_and_none_is_lost() -> None:
    event = (
        b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"fill":"'
        + b"-" * 900
        + b'"}}'
    )
    events = [event % at for at in range(5000)]
    data = b'{"schemaVersion": 1, "traceEvents": [' + b", ".join(events) + b'], "traceName": "a"}'
    spans = kineto.Reader(data, "").spans()
    assert len(spans) > 4
    cut = [data[begin:end] for begin, end in spans]
    assert cut[0].endswith(events[0])
    assert b", ".join(cut) == data
    assert kineto.TAIL_BYTES // 2 < len(cut[-1]) <= kineto.TAIL_BYTES
    assert all(b"schemaVersion" not in part and b"traceName" not in part for part in cut[1:-1])
