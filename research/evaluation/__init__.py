"""Comparisons: records of what a learner predicted for held-out runs, their tables, the noise floor, known changes."""
