"""Run folders -> normalized graphs with labels, split by run."""
