"""How to divide a transformer over devices: candidates, bounds of their steps, the search."""
