import pytest

from gnnperf.gnn.data.prepare import PreparedData
from tests.research.baselines.made_data import twice_recorded


@pytest.fixture(scope="module")
def repeated_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """With two recordings of the test run."""
    return twice_recorded(tmp_path_factory.mktemp("cache"))
