"""The compiled scanner of large files: the same columns as decoding gives, and what it leaves to that."""

import numpy as np
import pytest

from gnnperf.trace.assembly import of_decoded
from gnnperf.trace.columns import MISSING_NS
from gnnperf.trace.kineto import Reader
from gnnperf.trace.scanner import scanned

EVENTS = rb"""[
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm \u00e9", "pid": 7, "tid": -1029147072, "ts": 1661203462598738.125,
  "dur": 19, "args": {"External id": 5, "Input Dims": [[2, 3], [[4], []], []], "Input type": ["float", "", null],
                      "Sequence number": 3, "Fwd thread id": 0, "Call stack": "a\\b", "x": {"y": [1.5e-3, true]}}},
 {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":"stream 7","ts":1661203462598740,"dur":0.5,"args":{"stream":7,
  "correlation":18446744073709551615,"grid":[64,1,1],"block":[128,1,1],"registers per thread":90,"bytes":"60"}},
 {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 0, "tid": 7, "ts": null, "dur": 3, "args":
  {"Collective name": "allreduce", "In msg nelems": 8, "grid": [64, 1, 1], "block":[128,1,1]}},
 {"ph": "s", "id": 3, "pid": 7, "tid": 7, "ts": 1661203462598738, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
 {"ph": "i", "cat": "cpu_op", "name": "mark", "ts": 5, "s": "g"}, {"ph": "M", "name": "n", "args": {"name": "p"}}, {},
 {"ph": "X", "cat": "mtia_ccp_events", "name": "dma_request", "pid": 0, "tid": 1, "ts": 9.010, "dur": 2}
]"""


def test_columns_are_those_of_decoded_events() -> None:
    result, expected = scanned(EVENTS), of_decoded(Reader(b"", "t").events(EVENTS))
    assert result is not None and result.kind.tolist() == expected.kind.tolist() == [0, 3, 3, 4]
    for name, column in expected.numbers.items():
        np.testing.assert_array_equal(result.numbers[name], column, err_msg=name)
    assert result.numbers["start_ns"].tolist() == [1661203462598738125, 1661203462598740000, MISSING_NS, 9010]
    assert result.numbers["tid"].tolist() == [-1029147072, 7, 7, 1]
    for own, other in ((result.name, expected.name), *((result.inputs[i], expected.inputs[i]) for i in result.inputs)):
        texts = [[coded[1][code] if code >= 0 else None for code in coded[0]] for coded in (own, other)]
        assert [text or None for text in texts[0]] == [text or None for text in texts[1]]
    assert result.name[1][0] == "aten::mm \u00e9" and result.launch[1] == expected.launch[1]
    assert [(row, args.in_elements) for row, args in result.metadata] == [(2, 8.0)]
    assert result.flows == expected.flows == [("s", 3, 7, 1661203462598738)]


@pytest.mark.parametrize(
    ("text", "by"),
    [
        (b'"dur": 19', b'"dur": 19.0005'),  # a fraction of a nanosecond
        (b'"dur": 19', b'"dur": 1e3'),
        (b'"External id": 5', b'"External id": 5.0'),
        (b'"External id": 5', b'"External\\u0020id": 5'),  # an escaped key
        (b"[[2, 3], ", b"[[2 3], "),  # no JSON
        (b"1.5e-3", b"nan"),
        (b'"a\\\\b"', b'"a\\b c\\x"'),
        (b"{},", b"3,"),
        (b'"dur": 2}', b'"dur": 2'),
    ],
)
def test_what_is_unusual_is_left_to_the_decoder(text: bytes, by: bytes) -> None:
    assert text in EVENTS and scanned(EVENTS.replace(text, by)) is None
