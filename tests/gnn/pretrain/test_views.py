"""Views name features that there are, and leave some; settings that cannot work are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.numbers import DEVICE_NAMES, WORK_NAMES
from gnnperf.gnn.pretrain.config import PretrainConfig
from gnnperf.gnn.pretrain.views import VIEWS


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_drops_some_features(view: str) -> None:
    assert set(VIEWS[view]) <= {*WORK_NAMES, *DEVICE_NAMES}
    assert {"log_compute_us", "log_waves", "align_k"} <= set(WORK_NAMES) - set(VIEWS[view])


def test_no_view_shows_numbers_of_the_device() -> None:
    assert all(set(DEVICE_NAMES) <= set(dropped) for dropped in VIEWS.values())


@pytest.mark.parametrize("name", ["steps", "rows_per_step", "rows_per_group", "learning_rate", "huber_delta"])
def test_settings_that_cannot_work_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(InputError, match=name):
        PretrainConfig(**settings)
