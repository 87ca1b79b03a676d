"""Intervals of nodes, steps and devices without calibration."""
