from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where features of the made-up runs are kept."""
    return tmp_path_factory.mktemp("cache")
