"""Recipes: which training programs are recorded, how, and how the recordings become a data set."""
