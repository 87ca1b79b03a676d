"""Take out of trace files what they say about the machine and its user.

Kineto writes a header of metadata (`host_name` among it), the events, and the path it was written to (`traceName`).
Header keys are kept by a list of what is wanted, so that a key a later version adds is dropped, not published.
"""

from __future__ import annotations

import json

EVENTS = b'"traceEvents": ['
KINETO_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "record_shapes",
    "trace_id",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
)
EXECUTION_TRACE_KEYS = ("schema", "nodes")  # left out: process number and date


def kineto_without_environment(trace: bytes) -> bytes:
    """The same trace with the wanted header keys and the events only.

    Raises:
        ValueError: the file has no header followed by a list of events.
    """
    start = trace.index(EVENTS)
    end = trace.rindex(b"]")
    header = json.loads(trace[:start] + EVENTS + b"]}")
    kept = json.dumps({key: header[key] for key in KINETO_KEYS if key in header})
    return kept[:-1].encode() + b',\n"traceEvents": [' + trace[start + len(EVENTS) : end] + b"]}\n"


def execution_trace_without_environment(trace: bytes) -> bytes:
    """The same execution trace with its schema and its nodes only."""
    content = json.loads(trace)
    return json.dumps({key: content[key] for key in EXECUTION_TRACE_KEYS}).encode()
