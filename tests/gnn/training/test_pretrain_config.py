from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.training.pretrain_config import PretrainConfig


@pytest.mark.parametrize("name", ["steps", "rows_per_step", "rows_per_group", "learning_rate", "huber_delta"])
def test_settings_that_cannot_work_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(InputError, match=name):
        PretrainConfig(**settings)
