"""Memory over the step on the page."""

from dataclasses import replace

from gnnperf.memory import Part, PeakMemory, Timeline
from gnnperf.predict import RankMemory, StepPrediction
from gnnperf.report.json_document import document
from gnnperf.report.page.memory import HEIGHT, WIDTH, timelines
from tests.predict.predictions import toy_prediction
from tests.report.page.pages import page_of

OVER_TIME = Timeline((0.0, 50.0, 100.0), {Part.PARAMETERS: (10, 10, 10), Part.ACTIVATIONS: (0, 30, 10)})


def _prediction(*ranks: int) -> StepPrediction:
    peaks = [
        PeakMemory(rank, "step", {Part.ACTIVATIONS: rank + 1}, "aten::mm", 0, timeline=OVER_TIME) for rank in ranks
    ]
    return replace(toy_prediction(), peak_memory=tuple(RankMemory(peak, None) for peak in peaks))


def test_areas_stand_on_each_other_and_keep_their_level_until_the_next_point() -> None:
    drawn = timelines(_prediction(0))
    below = f"0.0,{HEIGHT * 0.75:.1f} {WIDTH / 2:.1f},{HEIGHT * 0.75:.1f}"  # 10 of at most 40
    assert f'<polygon fill="var(--blue)" points="{below}' in drawn
    assert f"{WIDTH / 2:.1f},0.0 {WIDTH:.1f},0.0 {WIDTH:.1f},{HEIGHT / 2:.1f}" in drawn
    assert "rank 0: up to" in drawn


def test_the_fullest_ranks_are_drawn() -> None:
    drawn = timelines(_prediction(*range(6)))
    assert drawn.count("<svg") == 4
    assert "rank 1:" not in drawn and "rank 2:" in drawn


def test_what_is_unknown_is_left_out() -> None:
    assert timelines(toy_prediction()) == ""
    assert "reserved at most" not in page_of(_prediction(0))


def test_document_has_the_points() -> None:
    given = document(_prediction(0))["peak_memory"][0]["timeline"]
    assert given["time_us"] == [0.0, 50.0, 100.0]
    assert given["parts_bytes"]["activations"] == [0, 30, 10]


def test_page_has_a_card_of_the_fullest_rank_and_the_allocator_at_most() -> None:
    peaks = [
        PeakMemory(rank, "step", {Part.ACTIVATIONS: size << 30}, "aten::mm", 0, most_reserved_bytes=(size + 2) << 30)
        for rank, size in ((0, 3), (1, 5))
    ]
    page = page_of(
        replace(toy_prediction(), hardware="big", peak_memory=tuple(RankMemory(p, None, 8 << 30) for p in peaks))
    )
    assert '<dd id="memory-peak">5&nbsp;GiB of 8&nbsp;GiB</dd><dd class="note">memory fits: rank 1, the fullest' in page
    assert '<th scope="col">reserved at most</th>' in page
    assert ">7 GiB</td>" in page
