from pathlib import Path

import pytest
from synthetic import toy_data

from gnnperf.gnn.data.prepare import PreparedData


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where features of the made-up runs are kept."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def data() -> PreparedData:
    """The made-up data set; no test changes it."""
    return toy_data()
