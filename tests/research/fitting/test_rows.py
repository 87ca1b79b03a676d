"""What trains, what is left out together, samples that repeat."""

import numpy as np

from research.fitting.rows import GENERATION, NO_DEVICE, NO_FORM, sampled, usable
from tests.research.op_rows import A100, T4, V100, add_rows, product_rows, table


def test_generations_come_from_the_catalog() -> None:
    rows = usable(table(product_rows((A100, T4)))).rows
    assert rows.groupby("device")[GENERATION].first().to_dict() == {A100: "ampere", T4: "turing"}


def test_what_cannot_train_is_counted() -> None:
    unknown = product_rows((V100,)).assign(device="Voodoo 2")
    backward = add_rows().assign(direction="backward")
    result = usable(table(product_rows((V100,)), unknown, backward))
    assert len(result.rows) == 6
    assert result.dropped == {f"toys: {NO_DEVICE}": 6, f"toys: {NO_FORM}": 3}


def test_samples_are_of_every_group_and_repeat() -> None:
    rows = product_rows((A100, V100))
    places = sampled(rows, 2, ["device"], seed=3)
    assert rows["device"].iloc[places].value_counts().to_dict() == {A100: 2, V100: 2}
    assert np.array_equal(places, sampled(rows, 2, ["device"], seed=3))
    assert np.array_equal(sampled(rows, 99, ["device"], seed=0), np.arange(len(rows)))
