"""What labels of one model size and one parallelism bring, on configurations that differ from them in both.

Ten labels: of the columns, only global batch and micro-batch vary among them. A ridge on columns learns the time itself
from them, a ridge on the model's log errors what the model has wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks._vtrain import columns_of
from benchmarks._vtrain_trivial import log_columns, models, ridge
from gnnperf.evaluate.metrics import absolute_percentage_error
from gnnperf.plan.transformer import TransformerPlan


@dataclass(frozen=True)
class FewLabels:
    """Mean errors [num_choices] on what was held out, one per choice of model size and parallelism.

    Attributes:
        without: the model, no label used.
        corrected: the model times what its errors on the labels suggest.
        columns: the ridge on columns.
    """

    without: np.ndarray
    corrected: np.ndarray
    columns: np.ndarray


def few_labels(plans: list[TransformerPlan], predicted_us: np.ndarray, measured_us: np.ndarray) -> FewLabels:
    """All choices of one model size and one parallelism."""
    model, columns = models(plans), log_columns(plans)
    ways = columns_of(plans).groupby(["tensor", "data", "pipeline"]).ngroup().to_numpy()
    found = []
    for size, way in np.unique(np.stack([model, ways]), axis=1).T:
        seen, asked = (model == size) & (ways == way), (model != size) & (ways != way)
        missed = np.log(measured_us[seen] / predicted_us[seen])
        answers = (
            predicted_us[asked],
            predicted_us[asked] * np.exp(ridge(columns[seen], missed, columns[asked])),
            np.exp(ridge(columns[seen], np.log(measured_us[seen]), columns[asked])),
        )
        found.append([absolute_percentage_error(us, measured_us[asked]).mean() for us in answers])
    return FewLabels(*np.array(found).T)
