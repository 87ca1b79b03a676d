"""Fits of the constants in conf/analytic on public tables and recordings, and of factors on a few measured steps."""
