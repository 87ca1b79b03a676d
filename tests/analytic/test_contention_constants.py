"""Constants of contention: their file, and what they mean on a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.constants_file import read_constants
from gnnperf.analytic.contention_constants import ContentionConstants, CpuContention, default_contention
from gnnperf.hardware import load_cluster, load_device
from gnnperf.hardware.contention import UNLIMITED, Bucket
from research.fitting.files import write_constants
from tests.toys import two_rank_graph

CONSTANTS = ContentionConstants(CpuContention(2e9, 5e8), "a test")


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    write_constants(tmp_path / "own.yaml", CONSTANTS, 6)
    assert read_constants(tmp_path / "own.yaml", ContentionConstants) == CONSTANTS


def test_a_gpu_has_its_own_links() -> None:
    result = CONSTANTS.on(load_cluster("hgx_h100"))
    assert (result.ranks_per_inner_link, result.ranks_per_outer_link, result.ranks_per_node) == (1, 1, 8)
    assert result.cores_per_node == UNLIMITED


def test_ranks_on_cpus_share_cores_and_the_line_of_their_node() -> None:
    result = CONSTANTS.on(load_cluster("loopback_cpu", load_device("cpu_generic")))
    assert (result.cores_per_node, result.ranks_per_inner_link, result.ranks_per_outer_link) == (2.0, 0, 8)
    assert (result.inner_core_bytes_per_s, result.outer_core_bytes_per_s) == (2e9, 5e8)


def test_a_token_bucket_limits_the_lines_of_a_node() -> None:
    """Bytes with tokens pass as on NVLink between GPUs, as a core moves them (500 MB/s) between processors."""
    for name, at_once in (("hgx_h100", None), ("loopback_cpu", 5e8)):
        cluster = load_cluster(name)
        assert CONSTANTS.on(cluster).outer_bucket is None
        limited = replace(cluster, inter=replace(cluster.inter, bucket_bytes=7e4))
        fastest = at_once or cluster.intra.sustained_bytes_per_s
        assert CONSTANTS.on(limited).outer_bucket == Bucket(7e4, cluster.inter.sustained_bytes_per_s, fastest)


def test_the_analytical_prediction_is_of_ops_isolated() -> None:
    cluster = load_cluster("hgx_h100")
    graph = two_rank_graph()
    isolated = AnalyticPredictor(contention=CONSTANTS).predict(graph, cluster).isolated
    assert isolated is not None
    assert (np.asarray(isolated.nodes).all(), isolated.contention) == (True, CONSTANTS.on(cluster))


def test_shipped_constants_name_their_command() -> None:
    assert "research.fitting.contention" in default_contention().provenance
