"""Recurrent layers (LSTM, GRU): a product of all inputs at once, and one of the state per time step.

Each step reads the recurrent weights anew: small batches pay for the weights, not for their arithmetic (Appleyard,
Kocisky, Blunsom 2016, section 3).
"""

from __future__ import annotations

from itertools import pairwise

from gnnperf.analytic.cpu.call import Call, Counts, Shape, far_bytes, is_shape, streamed

LAYER, STACK = "mkldnn_rnn_layer", ("lstm", "gru", "rnn_tanh", "rnn_relu")
GRADIENT = 2.0  # of inputs and of weights: twice the products


def recurrent(call: Call) -> Counts | None:
    """Counts of a layer or of a stack of them; None of other calls, streamed where shapes do not tell."""
    if call.op.startswith(LAYER):
        return _layer(call)
    return _stack(call) if call.op in STACK else None


def _layer(call: Call) -> Counts:
    """(x [T, B, I], weights [G, I], weights [G, H], ...), the same in its gradient."""
    if len(call.dims) < 3 or [len(d or []) for d in call.dims[:3]] != [3, 2, 2] or not is_shape(call.dims[0]):
        return streamed(call)
    (steps, batch, _), of_inputs, of_state = call.dims[:3]
    times = GRADIENT if "backward" in call.op else 1.0
    return _with_call(call, _products(steps, batch, of_inputs, of_state, times))


def _stack(call: Call) -> Counts:
    """(x [T, B, I] or [B, T, I], states [L, B, H], of an LSTM a list of two, all weights and biases, ...)."""
    x, states, weights = [*call.dims, [], [], []][:3]
    first = states[0] if states and isinstance(states[0], list) else states
    matrices = [w for w in weights or [] if isinstance(w, list) and len(w) == 2]
    if not x or len(x) != 3 or not first or len(first) != 3 or not first[1] or len(matrices) < 2:
        return streamed(call)
    steps = x[0] * x[1] / first[1]
    layers = [_products(steps, first[1], *pair, 1.0) for pair in list(pairwise(matrices))[::2]]
    return _with_call(call, {name: sum(layer[name] for layer in layers) for name in layers[0]})


def _products(steps: float, batch: float, of_inputs: Shape, of_state: Shape, times: float) -> dict[str, float]:
    """Panels of both products of a layer (counts.py), weights [G, I] and [G, H]."""
    gates, inputs = of_inputs
    return {
        "product": times * steps,
        "row": times * 2.0 * steps * batch,
        "left": times * steps * batch * (inputs + of_state[1]),
        "right": times * (inputs * gates + steps * of_state[1] * of_state[0]),
        "result": times * 2.0 * steps * batch * gates,
    }


def _with_call(call: Call, products: Counts) -> Counts:
    return {"call": 1.0, "flop": call.flops, "far_byte": far_bytes(call), **products}
