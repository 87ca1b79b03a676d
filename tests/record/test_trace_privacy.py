from __future__ import annotations

import json

import pytest

from gnnperf.record.recorder import kineto_without_environment

TRACE = b"""
 {
    "schemaVersion": 1,
    "deviceProperties": [],
    "distributedInfo": {"rank": 1, "pg_config": [{"ranks": [0, 1]}]},
      "host_name": "somewhere",
      "a_key_of_the_future": {"user": "somebody"},
    "traceEvents": [
  {"ph": "X", "name": "a [b] ]", "args": {"Input Dims": [[2, 3]]}}
  ],"traceName": "/home/somebody/trace.json" }
"""


def test_events_and_wanted_keys_stay() -> None:
    cleaned = json.loads(kineto_without_environment(TRACE))
    assert cleaned == {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"rank": 1, "pg_config": [{"ranks": [0, 1]}]},
        "traceEvents": [{"ph": "X", "name": "a [b] ]", "args": {"Input Dims": [[2, 3]]}}],
    }


def test_a_file_without_events_is_refused() -> None:
    with pytest.raises(ValueError, match="not found"):
        kineto_without_environment(b"{}")
