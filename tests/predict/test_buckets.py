"""Token buckets of a trace's links: given by the request, and missed where the checkpoint learned of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toys import two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.hardware import Placement, load_cluster
from gnnperf.predict import api
from gnnperf.predict.api import trained_bucket_bytes, untold
from gnnperf.predict.edited import NO_BUCKETS, predict_edited
from gnnperf.predict.request import Mode, Request, check
from gnnperf.whatif import apply
from gnnperf.whatif.hardware import ChangeLink

LIMITED = replace(two_rank_graph(), placement=Placement(2, 125e6))


def test_what_training_was_reported() -> None:
    assert trained_bucket_bytes({"training": {"bucket_bytes": 7e4}}) == 7e4
    for nothing in ({}, {"training": None}, {"training": {"seed": 0}}, {"training": {"bucket_bytes": None}}):
        assert trained_bucket_bytes(nothing) is None


def test_a_limited_link_without_its_bucket_is_stated() -> None:
    assert "bucket_bytes=70000 tells it" in untold(LIMITED, 7e4, follows_card=True)[0]
    given = replace(LIMITED, placement=Placement(2, 125e6, 7e4))
    for graph in (given, two_rank_graph(), replace(LIMITED, placement=Placement(2))):
        assert untold(graph, 7e4, follows_card=True) == ()
    assert untold(LIMITED, None, follows_card=True) == untold(LIMITED, 7e4, follows_card=False) == ()


def test_the_request_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "load_graph", lambda trace, cache_dir: LIMITED)
    given = api.requested_graph(Request(tmp_path, bucket_bytes=7e4)).placement
    assert given == Placement(2, 125e6, 7e4)
    assert api.requested_graph(Request(tmp_path)).placement == LIMITED.placement


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(bucket_bytes=0.0), "bad value 0.0.*above 0"),
        (Request(bucket_bytes=float("nan")), "bad value nan"),
        (Request(bucket_bytes=7e4, cluster=load_cluster("loopback_cpu")), r"cluster\.inter\.bucket_bytes"),
        (Request(bucket_bytes=7e4, mode=Mode.replay), "no use in mode=replay"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, request_: Request, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(replace(request_, trace=tmp_path))


def test_transfers_over_lines_of_different_limits_are_spared_nothing() -> None:
    """A bucket goes with the limit of its own line."""
    cluster = load_cluster("hgx_h100")
    cluster = replace(cluster, ranks_per_node=1, inter=replace(cluster.inter, bucket_bytes=7e4))
    graph = two_rank_graph()
    whole, part = (
        predict_edited(apply(graph, [edit]), AnalyticPredictor(), cluster)
        for edit in (ChangeLink(link="inter", bandwidth_factor=0.1),
                     ChangeLink(link="inter", bandwidth_factor=0.1, collective="all_reduce"))
    )  # fmt: skip
    assert whole.isolated is not None and whole.isolated.contention.outer_bucket is not None
    assert NO_BUCKETS not in whole.warnings
    assert part.isolated is not None and part.isolated.contention.outer_bucket is None
    assert NO_BUCKETS in part.warnings
