"""Batch norms: a block per channel, by hand, and against kernels of recorded H200 runs."""

from dataclasses import replace

import numpy as np
import pytest
from round_device import DEVICE, ROUND

from gnnperf.analytic.batch_norm import (
    ApplyKernel,
    ChannelKernel,
    apply_us,
    batch_norms_us,
    channel_us,
    default_batch_norm_constants,
)
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.hardware import load_device
from tests.analytic.kernels.calls import call

H200 = load_device("h200")
TOY = replace(H200, num_sms=2, clock_hz=1e9, memory_bandwidth_bytes_per_s=1e12)  # 8 blocks at once, 1 MB per us
KERNEL = ChannelKernel(tensors=2.0, block_bytes_per_clock=10.0, bandwidth_share=0.5, bytes_per_clock=1e9)


@pytest.mark.parametrize(("channels", "waves"), [(1, 1), (8, 1), (9, 2)])
def test_a_wave_of_blocks_takes_the_latency_of_one(channels: int, waves: int) -> None:
    # 10,000 elements x 4 bytes x 2 tensors / 10,000 bytes per us = 8 us; 40 bytes of bandwidth count nothing
    fast = replace(TOY, memory_bandwidth_bytes_per_s=1e18)
    assert channel_us(1e4, channels, 4, fast, KERNEL, 3.0) == pytest.approx(8.0 * waves, rel=1e-6)


def test_many_channels_are_bound_by_bandwidth_or_issuing() -> None:
    # 8 channels x 1e6 elements x 2 bytes x 2 tensors / (1e6 bytes per us x 0.5) = 64 us; latency: 800 us; power 1: both
    assert channel_us(1e6, 8, 2, TOY, KERNEL, 1.0) == pytest.approx(64.0 + 800.0)
    # or issuing: 8e6 elements x 4 bytes x 2 tensors / (2 SMs x 20 bytes per clock x 1,000 clocks per us) = 1,600 us
    assert channel_us(1e6, 8, 2, TOY, replace(KERNEL, bytes_per_clock=20.0), 1.0) == pytest.approx(1600.0 + 800.0)


def test_small_blocks_of_the_elementwise_kernel_count_by_number() -> None:
    kernel = ApplyKernel(tensors=2.0, bytes_per_clock=500.0, block_us_per_sm=0.1)
    assert apply_us(64.0, 100.0, 64.0, 2, TOY, kernel) == pytest.approx(100 * 64 * 0.1 / 2)  # 320 us
    assert apply_us(1e6, 100.0, 1.0, 2, TOY, kernel) == pytest.approx(2 * 1e8 * 4 / (2 * 500 * 1e3))  # 800 us


@pytest.mark.parametrize(
    ("op", "shape", "measured_us"),
    [  # sums of the kernels of one call (datasets/h200)
        ("aten::native_batch_norm", "[64,64,128,128]", 834.5 + 135.2 + 1.2),
        ("aten::native_batch_norm", "[64,2048,7,7]", 26.0 + 80.5 + 1.9),
        ("aten::native_batch_norm_backward", "[64,128,64,64]", 474.0),
        ("aten::cudnn_batch_norm_backward", "[32,64,224,224]", 2294.9),
    ],
)
def test_calls_of_an_h200_are_within_a_quarter(op: str, shape: str, measured_us: float) -> None:
    dtype = "float32" if "cudnn" in op else "bfloat16"
    kernels = 3 if op == "aten::native_batch_norm" else 1
    call = KernelCall(op, f"[{shape},{shape}]", dtype, "norm", 1.0, 1.0, kernels)
    assert kernel_times([call], H200, 4.0).latency_us[0] == pytest.approx(measured_us, rel=0.25)


def test_evaluation_has_the_elementwise_kernel_only() -> None:
    call = KernelCall("aten::native_batch_norm", "[[64,64,56,56]]", "bfloat16", "norm", 1.0, 1.0, num_kernels=1)
    moved_us = 2 * 64 * 64 * 56 * 56 * 2 / H200.memory_bandwidth_bytes_per_s * 1e6
    assert moved_us < kernel_times([call], H200, 4.0).latency_us[0] < 3 * moved_us


def test_the_constants_that_ship_cover_torchs_and_cudnns_ops() -> None:
    assert set(default_batch_norm_constants().kernels) == {
        f"aten::{library}_batch_norm{direction}" for library in ("native", "cudnn") for direction in ("", "_backward")
    }


@pytest.mark.parametrize(("samples", "groups", "walked"), [(128, 1, 128), (256, 4, 8)])
def test_group_norms_have_a_block_per_group_and_walk_samples_backward(samples: int, groups: int, walked: int) -> None:
    image, statistics, texts = [samples, 8, 10, 10], [samples, groups], ["", "", "", "", "", "", str(groups), ""]
    forward = call("aten::native_group_norm", [image, [8], [8], [], [], [], [], []], values=texts)
    backward = call("aten::native_group_norm_backward", [image, image, statistics, statistics, [8]])
    elements, constants = samples * 800, default_batch_norm_constants()
    statistics_kernel = constants.kernels["aten::native_batch_norm"]
    moments_us = channel_us(800 / groups, samples * groups, 4, DEVICE, statistics_kernel, 3.0)
    sums_us = apply_us(elements / 8, 8, samples, 4, DEVICE, constants.apply) + walked * 300 / 1e3  # clocks of 1 ns
    expected = [2.0 + elements * 4 * 2 / 0.5e6 + moments_us, 2.0 + elements * 4 * 3 / 0.5e6 + sums_us]
    assert batch_norms_us([forward, backward], ROUND) == pytest.approx(expected)
    wider = replace(forward, moved_bytes=forward.moved_bytes + 16 * 4)  # scale and shift of another dtype
    assert np.isnan(batch_norms_us([wider], ROUND)).all()
