"""Matrix products: sizes of calls, constants per kernel family, time by tiles and waves."""
