"""What ranks hold over the step, as areas on top of each other."""

from html import escape

from gnnperf.memory import Part, Timeline
from gnnperf.predict import RankMemory, StepPrediction
from gnnperf.report.page.markup import Markup, note, over_time, subtitle
from gnnperf.report.text import bytes_text

WIDTH, HEIGHT = 1000, 160
MOST_PICTURES = 4
COLORS = {
    Part.PARAMETERS: "blue", Part.OPTIMIZER_STATE: "sky", Part.INPUTS: "grey", Part.GRADIENTS: "amber",
    Part.ACTIVATIONS: "green", Part.GATHERED: "pink", Part.TEMPORARY: "red",
}  # fmt: skip


def timelines(prediction: StepPrediction) -> Markup:
    """A picture of each of the fullest ranks; nothing where it is not known."""
    known = [rank for rank in prediction.peak_memory if rank.peak.timeline is not None and rank.peak.timeline.time_us]
    if not known:
        return Markup("")
    fullest = sorted(known, key=lambda rank: -rank.peak.peak_bytes)[:MOST_PICTURES]
    keys = "".join(
        f'<li><span class="key" style="background:var(--{COLORS[part]})"></span>{escape(part.replace("_", " "))}</li>'
        for part in COLORS
        if any(rank.peak.timeline and part in rank.peak.timeline.parts_bytes for rank in fullest)
    )
    pictures = "".join(_picture(rank) for rank in sorted(fullest, key=lambda rank: rank.peak.rank))
    return Markup(f"{subtitle('Memory over the step')}{note('What is requested; the allocator rounds it up.')}"
                  f'<ul class="keys">{keys}</ul>{pictures}')  # fmt: skip


def _picture(rank: RankMemory) -> Markup:
    given = rank.peak.timeline
    assert given is not None, "chosen so"
    most = max(given.total_bytes)
    title = f"rank {rank.peak.rank}: up to {bytes_text(most)}"
    # One area per part, each on top of those before it; a level lasts until the next point.
    end = given.time_us[-1] or 1.0
    below = [0] * len(given.time_us)
    drawn = []
    for part, color in COLORS.items():
        if part not in given.parts_bytes:
            continue
        above = [a + b for a, b in zip(below, given.parts_bytes[part], strict=True)]
        outline = [*_steps(given, above, end, most), *reversed(_steps(given, below, end, most))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
        drawn.append(f'<polygon fill="var(--{color})" points="{points}"/>')
        below = above
    return over_time(title, [title], (WIDTH, HEIGHT), "".join(drawn), given.time_us[-1])


def _steps(given: Timeline, levels: list[int], end_us: float, most: int) -> list[tuple[float, float]]:
    """Corners of a line that keeps its level until the next point."""
    result: list[tuple[float, float]] = []
    for place, (time_us, level) in enumerate(zip(given.time_us, levels, strict=True)):
        x, y = WIDTH * time_us / end_us, HEIGHT * (1.0 - level / most)
        if place:
            result.append((x, result[-1][1]))
        result.append((x, y))
    return result
