"""Which features the network sees of op-table rows. Dimensionless ones transfer, raw ones interpolate."""

from __future__ import annotations

from collections.abc import Mapping

from gnnperf.gnn.data.numbers import DEVICE_NAMES, WORK_NAMES

# As they stand in traces; of one isolated op they say nothing, or which table a row is from.
HARDWARE = ("log_flops_per_sm", "log_bandwidth_per_sm", "log_cache_per_sm", "log_num_sms")
SIZES = (
    "log_flops", "log_bytes", "log_elements", "log_largest", "log_second", "log_first_dim", "log_last_dim",
    "log_batch", "log_m", "log_n", "log_k",
)  # fmt: skip
PLACES = (
    "log_world_size", "log_ranks_per_node", "log_host_speed", "log_link_bytes_per_s", "log_link_latency_us",
)  # fmt: skip

BY_SIZE = "ratios and sizes"
OWN = PLACES  # what a network drops that tells GPUs apart, for answers on those that it was trained on

# View -> features that it drops; those that transfer.
VIEWS: Mapping[str, tuple[str, ...]] = {
    "ratios": (*HARDWARE, *SIZES, *PLACES, *DEVICE_NAMES),
    BY_SIZE: (*HARDWARE, *PLACES, *DEVICE_NAMES),
}
assert set(HARDWARE + SIZES + PLACES) <= set(WORK_NAMES)
