"""Fits of constants of kernels: those that made the measurements come back."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from round_device import CONSTANTS
from round_device import DEVICE as ROUND

from gnnperf.analytic.convolution.model import ConvolutionConstants
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound.constants import EventGap, default_memory_constants
from gnnperf.analytic.roofline import OTHERS, FamilyShares
from research.fitting import cdna, memory
from research.fitting.convolution import fit_convolution_constants, forward_algorithms, log_error
from research.fitting.gemm import TILES, fit_for_others, fit_generations, measured, predicted_us
from research.fitting.recorded import TRAIN, changed, fitted, forms_us
from tests.analytic.kernels.calls import call


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


DEVICE = replace(ROUND, memory_bandwidth_bytes_per_s=1e11)  # transforms count
TRUE = ConvolutionConstants(0.8, 6.0, 1.3, 0.9, 40.0, 0.2, "made up")


def _rows() -> pd.DataFrame:
    """As the formula with TRUE's factors states, on a host of TRUE's pace and on one of four times that."""
    rng = np.random.default_rng(0)
    most = {"batch": 64, "in_channels": 600, "out_channels": 600, "in_size": 40}
    sizes = {name: rng.integers(3, edge, 200).astype(float) for name, edge in most.items()}
    how = {"kernel": 3.0, "stride": 1.0, "padding": 1.0, "launch_included": True}
    rows = pd.DataFrame({**sizes, **how, "calls_before": np.arange(200.0) * 20})
    kernel = forward_algorithms(rows, Setting(DEVICE, CONSTANTS, default_gemm_constants(), TRUE)).fastest_us(TRUE)
    hosts = {device: kernel + machine_scale * (TRUE.call_us + TRUE.growth_us * rows["calls_before"])
             for device, machine_scale in (("one", 1.0), ("other", 4.0))}  # fmt: skip
    return pd.concat([rows.assign(device=device, latency_us=us) for device, us in hosts.items()], ignore_index=True)


def test_the_fit_finds_the_kernels_and_the_typical_host() -> None:
    rows, gemm = _rows(), default_gemm_constants()
    result = fit_convolution_constants(rows, {"one": DEVICE, "other": DEVICE}, gemm, CONSTANTS, "here")
    ways = forward_algorithms(rows, Setting(DEVICE, CONSTANTS, gemm, TRUE))
    assert ways.fastest_us(result) == pytest.approx(ways.fastest_us(TRUE), rel=0.05)
    assert result.growth_us == pytest.approx(2.0 * TRUE.growth_us, rel=0.05)  # between a pace of 1 and one of 4
    assert result.provenance == "here"


def test_errors_are_of_the_sum_of_host_and_kernel() -> None:
    rows = _rows()
    one = rows[rows["device"] == "one"]
    ways = forward_algorithms(one, Setting(DEVICE, CONSTANTS, default_gemm_constants(), TRUE))
    assert log_error(ways, one, TRUE) == pytest.approx(np.zeros(200), abs=1e-12)
    isolated = one.assign(launch_included=False, calls_before=np.nan, latency_us=ways.fastest_us(TRUE))
    # The device's own time has no wait.
    assert log_error(ways, isolated, TRUE) == pytest.approx(np.zeros(200), abs=1e-12)


def test_a_constant_is_fitted_on_the_calls_that_it_decides() -> None:
    casts = [replace(call("aten::copy_", [[n], [n]]), moved_bytes=6.0 * n) for n in (10**6, 10**7)]
    rows = pd.DataFrame({"call": [*casts, call("aten::copy_", [[10**7], [10**7]])], "family": "copy", "kernels": 1})
    rows = rows.assign(device="h200", part=TRAIN, total_us=1.0)
    constants = default_memory_constants()
    times = forms_us(rows, changed(constants, "index_cycles", "cast", 300.0))
    rows["us"] = [*times[:2], 1e6]  # the last one has no cast

    cast = ("index_cycles", "cast")
    value = fitted("cast", 100.0, lambda own, tried: forms_us(own, changed(constants, *cast, tried)), rows)
    assert value == pytest.approx(300.0, rel=1e-3)


def made_rows(stream_share: float) -> pd.DataFrame:
    """An elementwise, a softmax and a layer norm table as the model states they are, with a known bandwidth."""
    truth = {**memory.START.__dict__, "stream_share": stream_share}
    constants = type(memory.START)(**{**truth, "gaps": dict.fromkeys(("add", "softmax", "ln"), EventGap(20.0, 0.5))})
    rng = np.random.default_rng(0)
    parts = []
    for table, tensors in (("add", 3), ("softmax", 2), ("ln", 2)):
        rows, columns = np.exp(rng.uniform(0, 11, 400)).round(), np.exp(rng.uniform(3, 8, 400)).round()
        part = pd.DataFrame({"table": table, "device": "round", "rows": rows, "columns": columns,
                             "moved_bytes": tensors * 4.0 * rows * columns})  # fmt: skip
        parts.append(part.assign(latency_us=memory.predicted_us(part, ROUND, constants)))
    return pd.concat(parts, ignore_index=True)


def test_the_fit_finds_the_bandwidth_it_was_given() -> None:
    rows = made_rows(stream_share=0.6)
    fitted = memory.fit_memory_constants(rows, {"round": ROUND}, "made up")
    assert fitted.stream_share == pytest.approx(0.6, rel=0.02)
    assert fitted.gaps["add"].call_us == pytest.approx(memory.call_times_us(rows)["round", "add"])
    errors = np.abs(memory.predicted_us(rows, ROUND, fitted) / rows["latency_us"].to_numpy() - 1)
    assert errors.mean() < 0.02
    assert fitted.provenance == "made up"


RATE, BANDWIDTH = 1e15, 5e12


def rows_of(kind: str, shares: FamilyShares, count: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    flops, moved = 10 ** rng.uniform(8, 13, count), 10 ** rng.uniform(4, 9, count)
    rows = pd.DataFrame({"kind": kind, "flops": flops, "bytes": moved})
    rows = rows.assign(rate=RATE, bandwidth=BANDWIDTH, kernels=1.0, number=1.0)
    return rows.assign(measured_us=cdna.answered_us(rows, shares))


def test_shares_are_found_per_kind_and_rare_kinds_together() -> None:
    conv, copies = FamilyShares(0.25, 0.3, 6.0), FamilyShares(0.5, 0.7, 4.0)
    rare = rows_of("loss", copies, 2).assign(measured_us=5.0, flops=1.0, bytes=1.0)
    result = cdna.fitted(pd.concat([rows_of("conv", conv), rows_of("copy", copies), rare], ignore_index=True))
    assert set(result) == {"conv", "copy", OTHERS}
    for kind, known in (("conv", conv), ("copy", copies)):
        assert result[kind].compute_share == pytest.approx(known.compute_share, rel=0.05)
    assert result[OTHERS].start_us == pytest.approx(5.0, rel=0.1)


def test_what_a_kind_does_not_show_is_what_gemms_and_copies_reach() -> None:
    gemm, copies = FamilyShares(0.3, 0.3, 5.0), FamilyShares(0.5, 0.8, 5.0)
    short = rows_of("pooling", copies, 4).assign(flops=1.0, bytes=1.0, number=1e3, measured_us=5.0)
    rows = pd.concat([rows_of("gemm", gemm), rows_of("copy", copies), short], ignore_index=True)
    own = cdna.fitted(rows)["pooling"]
    assert own.compute_share == pytest.approx(cdna.fitted(rows)["gemm"].compute_share, rel=1e-3)
    assert own.bandwidth_share == pytest.approx(cdna.fitted(rows)["copy"].bandwidth_share, rel=1e-3)
