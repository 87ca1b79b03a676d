"""How far a network of op tables is trusted at rows near to and far from those that trained it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnperf.gnn.trust.trust import LEAST
from research.benchmarks._row_trust import fit_row_trust
from research.pretraining.fit import BY_SIZE, VIEWS, fit, prepare
from research.pretraining.forms import shipped_forms
from research.tables.columns import product_columns
from tests.research.op_networks import CONFIG, small_rows
from tests.research.op_rows import product_rows


def test_rows_of_training_are_trusted_and_larger_ones_less() -> None:
    model = fit(prepare(small_rows(), shipped_forms(), CONFIG), VIEWS[BY_SIZE], CONFIG, 0)
    trained = model.encode(small_rows())
    trust = fit_row_trust(model, trained)
    out_of_range, unlike = trust.distances(trained)
    assert not out_of_range.any()
    # Nineteen twentieths of the twelve rows by which it was given lie within each of the two usual distances.
    assert (unlike > 1.0 + 1e-6).sum() <= 2
    assert (trust.weight(trained) > 0.5).all()

    huge = product_rows()
    edge = np.full(len(huge), 2.0**17)
    columns: dict[str, Any] = product_columns("aten::linear", edge, edge, edge, "float32")
    far = model.encode(huge.assign(**columns))
    out_of_range, _ = trust.distances(far)
    assert (out_of_range > 0).all()
    weight = trust.weight(far)
    assert (weight < trust.weight(trained).min()).all()
    assert ((weight == 0) | (weight >= LEAST)).all()
