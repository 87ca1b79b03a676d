"""Prediction -> StepPrediction: schedule the latencies, compare, and say what is missing."""

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, InputError, Segment, StepTimeKind, counted
from gnnperf.graph import ExecutionGraph, Prediction, StepLabel, in_place, uncovered, uncovered_ops
from gnnperf.predict.request import Mode
from gnnperf.predict.step_prediction import Question, StepPrediction
from gnnperf.schedule import CHECK, NUM_UNROLLED, Schedule, schedule, step_us

# Which step of a trace is predicted, and which of the three step labels it is compared with.

WINDOW_NAME = "window"  # the step name of a trace without step marks (ExecutionGraph.steps)


def choose_step(graph: ExecutionGraph, step: int | None) -> StepLabel:
    """The step requested; without one, the step with the (lower) median measured time.

    Steps with a period are preferred: the first step of a window has none and is often the odd one.

    Raises:
        InputError: the graph holds no whole step, or not this one.
    """
    if not graph.steps:
        raise InputError(
            "no whole step in the trace", where=graph.name,
            remedy="record at least one whole step between two step marks",
        )  # fmt: skip
    if step is None:
        with_period = [s for s in graph.steps if s.period_us is not None]
        ranked = sorted(with_period or graph.steps, key=lambda s: (step_us(s), s.step))
        return ranked[(len(ranked) - 1) // 2]
    by_number = {s.step: s for s in graph.steps}
    if step not in by_number:
        allowed = ", ".join(f"{s.step} ({s.name})" for s in graph.steps)
        raise InputError(f"step={step} is not in the trace", where=graph.name, allowed=allowed)
    return by_number[step]


def step_time_kind(label: StepLabel) -> StepTimeKind:
    """Period where the step has one, else makespan; window for a trace without step marks."""
    if label.name == WINDOW_NAME:
        return StepTimeKind.WINDOW
    return StepTimeKind.MAKESPAN if label.period_us is None else StepTimeKind.PERIOD


def other_step(graph: ExecutionGraph, label: StepLabel) -> StepLabel:
    """The nearest other step, the later one on a tie; the step itself if it is the only one."""
    others = [s for s in graph.steps if s.step != label.step]
    return min(others, key=lambda s: (abs(s.step - label.step), -s.step), default=label)


def rank_start_skew_us(label: StepLabel) -> float:
    """How much later the last rank starts the step than the first: the profilers' opening times, mostly."""
    return max(label.rank_start_us) - min(label.rank_start_us) if label.rank_start_us else 0.0


# The step time, divided among the nodes of the critical path.
#
# path     |--T2--|--T4 launch--·
#                 |------- gemm --------|-- all_reduce --|-T1-|
# divided  |  T2  | T4 |     gemm       |   all_reduce   | T1 |       a launch holds its kernel back by the lag only
#                      ^ makespan - step time (a period begins where the previous step completed)


def critical_chain(graph: ExecutionGraph, schedule: Schedule) -> np.ndarray:
    """[num_on_path] node ids of the critical path, in the order in which time passes along it."""
    position = np.empty(graph.num_nodes, dtype=np.int64)  # [num_nodes] topological, decides between equal starts
    position[schedule.order] = np.arange(graph.num_nodes)
    on_path = np.flatnonzero(schedule.on_critical_path)
    return on_path[np.lexsort((position[on_path], schedule.start_us[on_path]))]


def critical_time_us(graph: ExecutionGraph, schedule: Schedule, step_time_us: float) -> np.ndarray:
    """[num_nodes] time the path spends at each node, inside the last `step_time_us` before the step's completion.

    A node's time lasts until the path goes on, so a delay after it (launch latency, stream gap) is part of it. The sum
    is `step_time_us`, less whatever passes before the path starts (replay: the rank began later than the first one).
    """
    chain = critical_chain(graph, schedule)
    begin = schedule.start_us[chain]  # [num_on_path]
    end = np.append(begin[1:], schedule.makespan_us)[: len(chain)]
    opens = schedule.makespan_us - step_time_us
    share = np.zeros(graph.num_nodes)
    share[chain] = np.maximum(end, opens) - np.maximum(begin, opens)
    return share


def delay_us(graph: ExecutionGraph, schedule: Schedule, step_time_us: float) -> float:
    """Part of the critical time in which no node of the path runs: launch latencies and gaps on streams."""
    chain = critical_chain(graph, schedule)
    opens = schedule.makespan_us - step_time_us
    ends, begins = schedule.end_us[chain][:-1], schedule.start_us[chain][1:]  # [num_on_path - 1]
    return float(np.maximum(np.maximum(begins, opens) - np.maximum(ends, opens), 0.0).sum())


def shares(critical_us: np.ndarray, labels: pd.Series | np.ndarray) -> dict[str, float]:
    """Label -> share of the critical time, largest first; labels without any critical time are listed with 0."""
    total = critical_us.sum()
    code, names = pd.factorize(labels)
    by_label = pd.Series(critical_us).groupby(code).sum().set_axis([str(name) for name in names]).sort_index()
    ordered = by_label.sort_values(ascending=False, kind="stable")
    return {str(name): float(value / total) if total > 0 else 0.0 for name, value in ordered.items()}


LONGEST_US = 1e14  # three years; outputs hold ns in 64 bits
NOT_TIMED = "Nodes without a latency: {:,}. The trace did not time them, and no model covers them."
NOTED_SKEW = 0.05  # share of a measured makespan from which the ranks' different starts are worth a sentence


def assemble(prediction: Prediction, question: Question) -> StepPrediction:
    """Schedule the predicted latencies of one step and collect the prediction.

    Latencies of isolated ops are stretched where work overlaps; those of the prediction are as scheduled. A node
    without a latency adds nothing to the schedule; the step time is then marked as a lower bound.
    """
    return collect(*_scheduled(prediction, question), question)


def time_us(prediction: Prediction, question: Question) -> float:
    """The step time of `assemble`, without what else it collects."""
    return _scheduled(prediction, question)[2]


def _scheduled(prediction: Prediction, question: Question) -> tuple[Prediction, Schedule, float]:
    """The prediction with latencies as scheduled, their schedule, and the step time it gives."""
    kind = step_time_kind(question.label)
    unrolled = NUM_UNROLLED if kind is StepTimeKind.PERIOD else 1
    scheduled_us = prediction.scheduled_us
    known_us = np.where(np.isnan(scheduled_us), 0.0, scheduled_us)  # [num_nodes]; the missing ones are named below
    start_us, ready_us = prediction.rank_start_us, None  # None: all ranks start together
    if start_us is not None:
        ready_us = prediction.graph.nodes["rank"].map(start_us).fillna(0.0).to_numpy(np.float64)  # [num_nodes]
    if prediction.isolated is None or not (prediction.isolated.nodes & (known_us > 0)).any():  # nothing can stretch
        scheduled = schedule(prediction.graph, known_us, prediction.lag_us, num_unrolled=unrolled, ready_us=ready_us)
    else:
        from gnnperf.schedule import schedule_with_contention

        result = schedule_with_contention(
            prediction.graph, known_us, prediction.lag_us, prediction.isolated, num_unrolled=unrolled, ready_us=ready_us
        )
        scheduled, prediction = result.schedule, in_place(prediction, result.latency_us)
    return prediction, scheduled, question.step_scale * step_time_us(scheduled, kind)


def collect(prediction: Prediction, scheduled: Schedule, predicted_us: float, question: Question) -> StepPrediction:
    """The prediction from latencies, their schedule and the step time it gives, of the question's kind."""
    if not 0 <= predicted_us <= LONGEST_US:
        what, where = f"the step is predicted to take {predicted_us:.3g} us", f"graph {prediction.graph.name!r}"
        raise InputError(what, where=where, allowed=f"0 to {LONGEST_US:.0e} us", remedy=CHECK)
    graph, kind = prediction.graph, step_time_kind(question.label)
    critical_us = critical_time_us(graph, scheduled, predicted_us)
    missing = uncovered_ops(graph, prediction.latency_us)
    measured_us = step_us(question.label)
    is_work = graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    waits = graph.nodes["segment"] == Segment.PEER_WAIT
    kinds = graph.nodes["node_type"].astype(object).mask(waits, str(Segment.PEER_WAIT))
    texts = {"warnings": _warnings(prediction, question, missing), "notes": _notes(prediction, question, kind, missing)}
    return StepPrediction(
        **vars(question) | texts,
        prediction=prediction,
        schedule=scheduled,
        step_time_kind=kind,
        step_time_us=predicted_us,
        is_lower_bound=_is_lower_bound(prediction, question, missing),
        traced_step_time_us=measured_us,
        measured_step_time_us=measured_us if question.same_hardware else None,
        rank_start_skew_us=rank_start_skew_us(question.label),
        rank_step_time_us=dict(zip(graph.ranks, scheduled.rank_step_time_us.tolist(), strict=True)),
        critical_us=critical_us,
        source_share=shares(critical_us[is_work], prediction.source[is_work]),
        critical_path_share=shares(critical_us[is_work], kinds[is_work]),
        critical_delay_us=delay_us(graph, scheduled, predicted_us),
        uncovered_ops=missing,
        uncovered_measured_share=_measured_share(graph, uncovered(graph, prediction.latency_us)),
    )


def step_time_us(scheduled: Schedule, kind: StepTimeKind) -> float:
    """Period or makespan, as the kind asks; a window is a makespan without marks."""
    if kind is not StepTimeKind.PERIOD:
        return scheduled.makespan_us
    assert scheduled.period_us is not None, "a period needs an unrolled schedule"
    return scheduled.period_us


def _measured_share(graph: ExecutionGraph, chosen: np.ndarray) -> float | None:
    """Share of the measured node time that the `chosen` [num_nodes] bool nodes hold; None without measurements."""
    measured_us = graph.nodes["latency_us"].to_numpy()
    total_us = np.nansum(measured_us)
    return float(np.nansum(measured_us[chosen]) / total_us) if total_us > 0 else None


def _is_lower_bound(prediction: Prediction, question: Question, missing: dict[str, int]) -> bool:
    """Whether work is left out that takes time; what a trace did not time is no part of its step either."""
    if not missing or not question.from_trace:
        return bool(missing)
    timed = prediction.graph.nodes["latency_us"].notna().to_numpy()
    return bool((timed & uncovered(prediction.graph, prediction.latency_us)).any())


def _warnings(prediction: Prediction, question: Question, missing: dict[str, int]) -> tuple[str, ...]:
    """What the user may have to act on, the most important first."""
    left_out = _is_lower_bound(prediction, question, missing)
    sentences = (
        *([_uncovered(prediction, missing)] if left_out else []),
        *question.warnings,
        *prediction.graph.warnings,
        *_ranks(prediction.graph),
    )
    return tuple(dict.fromkeys(sentences))


def _notes(prediction: Prediction, question: Question, kind: StepTimeKind, missing: dict[str, int]) -> tuple[str, ...]:
    """Facts about the prediction."""
    untimed = missing and not _is_lower_bound(prediction, question, missing)
    sentences = (
        *([NOT_TIMED.format(sum(missing.values()))] if untimed else []),
        *question.notes,
        *prediction.warnings,
        *_folded(prediction.graph),
        *_comparison(question, kind, prediction.rank_start_us is None),
    )
    return tuple(dict.fromkeys(sentences))


def _uncovered(prediction: Prediction, missing: dict[str, int]) -> str:
    first = ", ".join(f"{name} ({count})" for name, count in list(missing.items())[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    share = _measured_share(prediction.graph, uncovered(prediction.graph, prediction.latency_us))
    measured = "" if share is None else f", {100 * share:.1f} % of the trace's measured node time"
    nodes = counted(sum(missing.values()), "node")
    return f"Not covered: {nodes} of ops {first}{more}{measured}; without this work the step time is a lower bound."


def _comparison(question: Question, kind: StepTimeKind, starts_together: bool) -> list[str]:
    measured_us, skew_us = question.label.makespan_us, rank_start_skew_us(question.label)
    starts_together = starts_together and question.mode is not Mode.replay  # a replay keeps the measured starts
    # NaN: no one ran it
    if not (starts_together and kind is not StepTimeKind.PERIOD and skew_us > NOTED_SKEW * measured_us):
        return []
    return [f"The ranks start the measured step up to {skew_us:.0f} us apart; the measured {kind} of "
            f"{measured_us:.0f} us contains that, the predicted one does not."]  # fmt: skip


def _folded(graph: ExecutionGraph) -> list[str]:
    counts = sorted(set(graph.multiplicity.values()))
    each = " or ".join(f"{count:,}" for count in counts)
    return [f"Ranks with the same role are in the graph once; each stands for {each}."] if counts != [1] else []


def _ranks(graph: ExecutionGraph) -> list[str]:
    missing = graph.world_size - sum(graph.multiplicity.values())
    sentences = f"{missing} of {graph.world_size} ranks were not traced; what they do is not part of the prediction."
    return [sentences] if missing > 0 else []
