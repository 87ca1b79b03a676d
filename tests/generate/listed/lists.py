"""A layer of three nodes between two others, by hand."""

from __future__ import annotations

from gnnperf.generate.listed.operator_list import ListedOp

X = (2, 4, 8)


def op(name: str, kind: str, sources: str, inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> ListedOp:
    """A node; `sources` are names with spaces between them."""
    return ListedOp(name, kind, frozenset(sources.split()), inputs, output)


def residual() -> tuple[ListedOp, ...]:
    """embed | norm -> linear, added to the norm's input | head."""
    return (
        op("input_ids", "misc", "", (), (2, 4)),
        op("wte", "misc", "input_ids", ((2, 4),), X),
        op("m_h_0_ln", "VECln", "wte", (X,), X),
        op("m_h_0_fc", "Linear", "m_h_0_ln", (X,), X),
        op("add_1", "VECadd", "m_h_0_fc wte", (X, X), X),
        op("lm_head", "Linear", "add_1", (X,), (2, 4, 16)),
    )
