"""Fit what the analytical model takes as given on CPUs, and write conf/analytic/cpu.yaml.

    python -m research.fitting.cpu_constants [OUT.yaml]

Host overheads, lags and prices of ops: from all recordings of datasets/cpu-gloo, the profiler's own cost taken out, and
the op tables datasets/cpu-ops, cpu-lookups and cpu-updates. So the model is not to be judged on these recordings with
these constants: benchmarks fit anew for each workload (`_recorded_graphs.folds`), and training fits on its own runs.
"""

from dataclasses import replace

from gnnperf.analytic import fit_constants, read_calibrated_calls
from gnnperf.gnn.data.runs import cluster_for
from research.benchmarks._recorded_graphs import OP_TABLES, recorded_graphs
from research.fitting.files import requested_file, save_constants

PROVENANCE = (
    "host_overhead_us, segment_us, lag_us.cpu and op_prices: fitted by research/fitting/cpu_constants.py on "
    "datasets/cpu-gloo (gloo runs on an AMD EPYC, two cores, torch 2.13; without the profiler's cost), "
    "datasets/cpu-ops, cpu-lookups and cpu-updates. Do not judge the analytical model on those recordings with these "
    "constants. lag_us.gpu, collective_floor_us, copy_floor_us, pageable_share: as in gpu.yaml."
)


def main() -> None:
    """Fit and write."""
    out = requested_file("cpu.yaml")
    graphs = list(recorded_graphs().values())
    device = cluster_for(graphs[0], None, None).device
    fitted = fit_constants(graphs, device, read_calibrated_calls(OP_TABLES))
    print({k: round(v, 2) for k, v in fitted.segment_us.items()}, fitted.lag_us["cpu"], len(fitted.host_overhead_us))
    save_constants(replace(fitted, provenance=PROVENANCE), out)


if __name__ == "__main__":
    main()
