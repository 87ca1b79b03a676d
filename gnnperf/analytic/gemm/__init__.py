"""Matrix products, dense and sparse: sizes of calls, constants per kernel family, time by tiles and waves."""
