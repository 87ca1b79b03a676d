from __future__ import annotations

import pytest
from synthetic import prepared

from gnnperf.gnn.data.prepare import PreparedData


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """The made-up data set; no test changes it."""
    return prepared(tmp_path_factory.mktemp("cache"))
