"""The synthetic data set, prepared once per module."""

from __future__ import annotations

import pytest
from synthetic import prepared

from gnnperf.gnn.data.prepare import PreparedData
from tests.research.baselines.made_data import twice_recorded


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def repeated_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """With two recordings of the test run."""
    return twice_recorded(tmp_path_factory.mktemp("cache"))
