"""The fit of gemms."""

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic.gemm.constants import default_gemm_constants
from research.fitting.gemm import TILES, fit_for_others, fit_generations, measured, predicted_us


def test_every_set_of_kernels_has_a_voice_of_its_own() -> None:
    rows = pd.DataFrame(
        {"m": [64.0, 512.0] * 2, "n": 512.0, "k": 512.0, "batch": 1.0, "turns": 1.0, "op": "aten::linear",
         "dtype": "float32", "device": ["Tesla T4"] * 2 + ["Tesla P4"] * 2, "launch_included": True,
         "latency_us": [100.0, 200.0, 150.0, 400.0], "generation": ["turing"] * 2 + ["pascal"] * 2}
    )  # fmt: skip
    result = fit_for_others(rows)
    assert [m.kernels for m in result] == ["maxwell", "volta"] and {m.tiles for m in result} <= set(TILES["vector"])
    (one,) = fit_for_others(rows.assign(op="aten::bmm", generation="turing"))
    assert one.kernels == "volta"


def test_a_fit_finds_what_made_the_measurements() -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(32), np.log(8192), (200, 3))).round()
    rows = pd.DataFrame(sizes, columns=["m", "n", "k"]).assign(
        batch=1.0, turns=1.0, op="aten::linear", dtype="bfloat16", device="NVIDIA H200", launch_included=False,
        latency_us=1.0,
    )  # fmt: skip
    truth = (replace(default_gemm_constants()["matrix"][0], compute_share=0.7, memory_share=0.6),)
    rows["latency_us"] = predicted_us(measured(rows), truth)
    result = fit_generations(rows.assign(table="gemm", generation="hopper"))
    error = np.abs(predicted_us(measured(rows), result) / rows["latency_us"] - 1)
    assert error.mean() < 0.02
