"""How good a prediction is: metrics, trivial predictions, comparisons with intervals over runs."""
