"""What tables of cells show."""

from __future__ import annotations

from rich.console import Console

from research.evaluation.row_errors import seed_table
from tests.research.evaluation.made_records import made


def test_every_seed_of_rows_that_have_several() -> None:
    rows = {
        "gnn": [made(seed=0, errors=(0.1, 0.1, 0.1)), made(seed=2, errors=(0.2, 0.2, 0.2))],
        "mlp": [made("mlp", seed=1, errors=(0.3, 0.3, 0.3)), made("mlp", seed=2, errors=(0.4, 0.4, 0.4))],
        "trees": [made("trees", seed=0)],
        "analytic": [made("analytic", seed=None)],
    }
    console = Console(width=160)
    with console.capture() as shown:
        console.print(seed_table("size", rows))
    words = [line.split() for line in shown.get().splitlines()]
    lines = words[words.index(["row", "0", "1", "2"]) :]  # below the title
    assert lines[1] == ["gnn", "10.0", "/", "10.0", "(3)", "-", "20.0", "/", "20.0", "(3)"]
    assert lines[2] == ["mlp", "-", "30.0", "/", "30.0", "(3)", "40.0", "/", "40.0", "(3)"]
    assert len(lines) == 3
