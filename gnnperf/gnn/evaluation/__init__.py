"""How good an answer is: metrics, trivial answers, comparisons with intervals over runs."""
