"""Take out of a Kineto file what it says about the machine and its user.

Kineto writes a header of metadata (`host_name` among it), the events, and the path it was written to (`traceName`).
Header keys are kept by a list of what is wanted, so that a key a later version adds is dropped, not published.
"""

from __future__ import annotations

import json

EVENTS = b'"traceEvents": ['
KEPT_KEYS = (
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


def without_environment(trace: bytes) -> bytes:
    """The same trace with the wanted header keys and the events only.

    Raises:
        ValueError: the file has no header followed by a list of events.
    """
    start = trace.index(EVENTS)
    end = trace.rindex(b"]")
    header = json.loads(trace[:start] + EVENTS + b"]}")
    kept = json.dumps({key: header[key] for key in KEPT_KEYS if key in header})
    return kept[:-1].encode() + b',\n"traceEvents": [' + trace[start + len(EVENTS) : end] + b"]}\n"
