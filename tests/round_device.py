"""A device and constants of round numbers (0.5e12 bytes/s, 1e12 lane cycles/s): times are sums done in the head."""

from gnnperf.analytic.convolution.model import default_convolution_constants
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound.constants import EventGap, MemoryConstants, RowKernel
from gnnperf.hardware.spec import DeviceSpec

DEVICE = DeviceSpec(
    name="round", kind="gpu", flops_per_s={"float32": 1e12, "float16": 2e12, "float16_matrix": 8e12},
    memory_bandwidth_bytes_per_s=1e12, l2_bytes=1e6, num_sms=10, clock_hz=1e9, memory_bytes=1e10, lanes_per_sm=100,
    launch_floor_us=2.0, sustained_flops_share=1.0, sustained_bandwidth_share=1.0,
)  # fmt: skip
KERNEL = RowKernel(rereads=1.0, cycles_per_row=100.0, cycles_per_element=1.0, rows_in_flight_per_sm=10.0,
                   bandwidth_share=1.0, overlap_power=1.0)  # fmt: skip
CONSTANTS = MemoryConstants(
    stream_share=0.5, cache_share=1.0, partitioned_share=0.5, cache_bytes_per_clock=100.0,
    lane_cycles={"other": 1.0, "pow": 100.0, "depthwise": 10.0, "depthwise_weight": 100.0,
                 "depthwise_result": 200.0, "depthwise_result_tap": 20.0, "depthwise_pixel": 500.0,
                 "depthwise_pixel_tap": 10.0, "depthwise_weight_tap": 40.0, "few_channels": 5.0, "layout": 50.0},
    clocks={"column_level": 500.0, "column_row": 1.0, "layer_norm_row": 8.0, "cumsum_row": 300.0,
            "nll_loss_target": 2.0, "depthwise_round": 200.0},
    index_cycles=dict.fromkeys(("cast", "mixed", "broadcast", "broadcast_mixed", "strided", "transposed", "expanded",
                                "reduced", "reduced_row", "gather_row"), 1.0),
    attention={"backward_share": 0.7, "dropout_slowdown": 2.4, "float32_flops_per_clock": 80.0},
    convolution={"implicit": 1.5, "implicit_unaligned": 2.0, "unaligned": 3.0},
    rows={"layer_norm": KERNEL, "softmax_warp": KERNEL, "softmax_block": KERNEL},
    gaps={"add": EventGap(call_us=20.0, issue_share=0.5)}, provenance="round numbers",
)  # fmt: skip
ROUND = Setting(DEVICE, CONSTANTS, default_gemm_constants(), default_convolution_constants())
