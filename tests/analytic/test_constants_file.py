"""One reader for files of constants: what does not fit is one message with file, key, value and what is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from msgspec import Meta

from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.constants import ContentionConstants, CpuContention
from gnnperf.analytic.constants_file import constants_from, read_constants, rounded
from gnnperf.core import AboveZero, InputError, require
from gnnperf.hardware import UNLIMITED, Bucket, load_cluster, load_device
from research.fitting.files import write_constants
from tests.toys import two_rank_graph


@dataclass(frozen=True)
class Part:
    share: AboveZero
    name: str = ""

    def __post_init__(self) -> None:
        require(self.name != "bad", "name", self.name, "another name")


@dataclass(frozen=True)
class Whole:
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    by_key: Mapping[tuple[str, int], Part] = field(default_factory=dict)
    other: Part | None = None
    provenance: str = ""


GOOD: dict[str, Any] = {
    "parts": [{"share": 1, "name": "a"}], "by_key": {("x", 2): {"share": 0.5, "name": ""}}, "other": None,
    "provenance": "here",
}  # fmt: skip


def test_values_become_a_dataclass() -> None:
    assert constants_from(GOOD, Whole, "f") == Whole((Part(1.0, "a"),), {("x", 2): Part(0.5)}, None, "here")


def test_there_and_back(tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", Whole((Part(1 / 3, "a"),), {}, Part(2.0), "here"), 3)
    assert read_constants(tmp_path / "c.yaml", Whole) == Whole((Part(0.333, "a"),), {}, Part(2.0), "here")
    assert rounded((1.23456, 7, "x"), 3) == [1.23, 7, "x"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"more": 1}, "f: missing or unknown: more. Allowed: parts, by_key, other, provenance."),
        ({"parts": []}, "f, parts: bad value []. Allowed: "),
        ({"parts": [{"share": 0, "name": ""}]}, "f, parts[0].share: bad value 0. Allowed: a number above 0."),
        ({"parts": [{"share": 1}]}, "f, parts[0]: missing or unknown: name. Allowed: share, name."),
        ({"parts": [{"share": 1, "name": "bad"}]}, "f, parts[0].name: bad value 'bad'. Allowed: another name."),
        ({"by_key": {("x", "y"): {"share": 1, "name": ""}}}, "f, by_key: bad value ('x', 'y'). Allowed: a whole"),
        ({"by_key": 3}, "f, by_key: bad value 3. Allowed: a mapping of names to values."),
        ({"other": {"share": "much", "name": ""}}, "f, other.share: bad value 'much'. Allowed: a number."),
        ({"provenance": True}, "f, provenance: bad value True. Allowed: text."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_message(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        constants_from({**GOOD, **changed}, Whole, "f")
    assert str(error.value).startswith(message)


CONSTANTS = ContentionConstants(CpuContention(2e9, 5e8), "a test")


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
