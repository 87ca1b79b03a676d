"""Convolutions as implicit products or by Winograd transforms: sizes of calls, constants, time."""
