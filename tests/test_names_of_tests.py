"""Names of tests are the same in every process that collects them."""

from __future__ import annotations

import gzip
import time

import pytest

NOW = gzip.compress(b"a", mtime=time.time_ns() % 2**32)  # other bytes in every process


@pytest.mark.parametrize(("content", "size"), [(NOW, 1), (b"plain", 5)])
def test_bytes_do_not_name_a_test(request: pytest.FixtureRequest, content: bytes, size: int) -> None:
    assert len(gzip.decompress(content) if content is NOW else content) == size
    assert request.node.callspec.id in ("content-1", "content-5")
