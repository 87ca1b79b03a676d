"""Prepared data -> trained weights: losses, the Lightning module, the loop."""
