"""Every kind of known change as edits of a recorded graph, without a recording of the changed program.

    python -m research.benchmarks declared_edits [--trace]

The pairs of `interventions.json` (sleeps, links, repeated ops, slow ranks, blocking and, the other way round,
overlapping), and all pairs of runs whose names differ in one of link, rows of tables, length of sequences (with the
batch), batch and dtype. A's graph is edited without a look at B; the analytical model, whose constants have not seen
the workload, predicts A and the edited A; measured is the change of the step without the profiler, means over
recordings. A change counts where it is larger than the spread of the recordings of A and B. Trivial predictions:
the sleep itself, all bytes over the wire, the ratio of tokens, of samples, or of the bytes of an element; "nothing
changes" errs by 100 %.

With --trace, the pairs of `datasets/h200`, as predict.py predicts them from A's trace: with the profiler that recorded
both, and with profiler=remove against steps timed without it. Runs were recorded once, so their noise is unknown.
Which calls B repeats is read off the order of its ops. Trivial predictions: the step of A; a multiple of it, the sleep
added, the kernels of the copies added.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from rich.table import Table

from gnnperf import whatif
from gnnperf.analytic import AnalyticConstants, AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.gnn.data.recordings import Recording, read_json
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware.placement import BYTES_PER_GBIT
from gnnperf.predict import Request, predicted
from gnnperf.predict.edited import predict_edited
from gnnperf.predict.request import Profiler
from gnnperf.whatif.edit import ON_DEVICE, Edited, is_type, unedited
from research.benchmarks import _recorded_graphs as recorded
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, parser_of, print_head, print_row, run_main, show
from research.evaluation.op_copies import OpSelector
from research.evaluation.pairs import PAIRS, Change, Pair, read_pairs
from research.evaluation.reference_run import align_runs
from research.evaluation.repeats import RepeatOp, repeated_calls

BATCH = re.compile(r"_b(\d+)(?=_)")
LOW, HALVED = "_bfloat16", 0.5
LINK = re.compile(r"_(lo|[\d.]+g)$")
RANKS = re.compile(r"_x(\d+)(?=_)")
ROWS = re.compile(r"_r(\d+)k(?=_)")
TENSOR = re.compile(r"(gpt_l\d+_w\d+_s\d+_b)(\d+)_tp_x2_(\S+)")
TRANSFORMER = re.compile(r"_w(\d+)_s(\d+)_b(\d+)")
FIRST_CONVOLUTIONS = {"resnet_n1": (1, 3, 6)}  # of each block; the stem is 0, the wider blocks have a third one


@dataclass(frozen=True)
class DeclaredPair:
    """B is A with one known change."""

    kind: str  # of the change
    # a, b: names of the runs
    a: str
    b: str
    edits: tuple[whatif.Edit, ...]  # what makes A's graph B's
    # the change without any model: the sleep, time per Gbit over the wire, more tokens; 0 where none is at hand
    trivial_us: float = 0.0
    wire_us_per_gbit: float = 0.0
    trivial: float = 1.0  # B's step / A's step likewise; 1 where there is `trivial_us`


def declared_pairs(runs: set[str]) -> list[DeclaredPair]:
    """Every pair whose runs are there."""
    known = json.loads((recorded.DATASET / PAIRS).read_text())["pairs"]
    listed = [pair for pair in known if {pair["a"], pair["b"]} <= runs]
    result = [one for pair in listed for one in _intervention(pair)]
    return [*result, *link_pairs(runs), *_tables(runs), *_sequences(runs), *shape_pairs(runs), *_tensors(runs)]


def shape_pairs(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in `_b<batch>` by itself, in both directions, or in bfloat16."""
    for old, a, new, b in _differing(runs, BATCH, "_b"):
        ratio = int(new) / int(old)
        yield DeclaredPair("batch", a, b, (whatif.ScaleBatch(ratio),), trivial=ratio)
    for run in sorted(runs):
        if LOW in run and run.replace(LOW, "") in runs:
            edits = (whatif.ChangeDtype("bfloat16"),)
            yield DeclaredPair("dtype", run.replace(LOW, ""), run, edits, trivial=HALVED)


def _differing(runs: Iterable[str], value: re.Pattern[str], blank: str) -> Iterator[tuple[str, str, str, str]]:
    """(value, run, other value, other run) of runs whose names differ in this value only, in both directions."""
    alike: dict[str, dict[str, str]] = {}
    for run in sorted(runs):
        if match := value.search(run):
            alike.setdefault(value.sub(blank, run), {})[match[1]] = run
    for run_of in alike.values():
        for (one, a), (other, b) in permutations(run_of.items(), 2):
            yield one, a, other, b


def _intervention(pair: Mapping[str, object]) -> Iterator[DeclaredPair]:
    a, b, edit = str(pair["a"]), str(pair["b"]), pair["edit"]
    assert isinstance(edit, dict)
    if pair["kind"] == Change.SLEEP:
        us = float(edit["sleep_us"])
        yield DeclaredPair("sleep", a, b, (whatif.DeclarePause(us, edit["rank"], edit["place"]),), us)
    elif pair["kind"] in (Change.REPEAT, Change.SLOW_RANK) and "times" in edit:
        kind = "repeat" if pair["kind"] == Change.REPEAT else "slow rank"
        yield DeclaredPair(kind, a, b, (_repeat(a, edit["op"], edit["times"], edit["rank"]),))
    elif pair["kind"] == Change.BLOCKING:
        which = ("all_to_all", None) if a.startswith("dlrm") else ("all_reduce", "backward")
        yield DeclaredPair("blocking", a, b, (whatif.Block(*which),))
        yield DeclaredPair("overlap", b, a, (whatif.WaitLater(*which),))


def _repeat(run: str, op: str, times: int, rank: int | None) -> RepeatOp:
    ranks = None if rank is None else (rank,)
    sizes = TRANSFORMER.search(run)
    if sizes and op == "aten::linear":
        width, length, batch = map(int, sizes.groups())
        dims = f"[[{batch * length},{width}],[{4 * width},{width}],[{4 * width}]]"
        return RepeatOp(OpSelector(op, dims, "forward", ranks), times)
    first = next((calls for name, calls in FIRST_CONVOLUTIONS.items() if run.startswith(name)), (0,))
    return RepeatOp(OpSelector(op, None, "forward", ranks, first), times)


def link_pairs(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the link by itself, between hosts in both directions, and from one host to two."""
    for one, a, other, b in _differing(runs, LINK, ""):
        if other == "lo":
            continue
        rate = float(other.removesuffix("g"))
        edits = (whatif.ChangeLink(rate_gbit_per_s=rate, link="inter"),)
        if one == "lo":
            yield DeclaredPair("two hosts", a, b, (whatif.ChangeCluster(nodes=2), *edits), wire_us_per_gbit=1e6 / rate)
        else:
            more_us = 1e6 / rate - 1e6 / float(one.removesuffix("g"))
            yield DeclaredPair("link", a, b, edits, wire_us_per_gbit=more_us)


def replica_pairs(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the number of ranks, in both directions; DLRMs divide their tables as well."""
    for old, a, new, b in _differing((run for run in runs if not run.startswith("dlrm")), RANKS, "_x"):
        yield DeclaredPair("replicas", a, b, (whatif.WorldSize(int(new), 1 if old == "1" else None),))


def _sent_gbit(graph: ExecutionGraph) -> float:
    """What a step sends, each message once."""
    nodes = graph.nodes
    sent = nodes["message_bytes"][(nodes["node_type"] == "collective") & nodes["step"].ge(0)]
    return float(np.nansum(sent)) / len(graph.steps) / BYTES_PER_GBIT


def _tables(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the rows of tables only, in both directions."""
    for old, a, new, b in _differing(runs, ROWS, "_r"):
        yield DeclaredPair("table rows", a, b, (whatif.ResizeTables(int(new) / int(old)),))


def _sequences(runs: set[str]) -> Iterator[DeclaredPair]:
    """Names that differ in the length of sequences, and perhaps in the batch, in both directions."""
    alike: dict[str, list[tuple[int, int, str]]] = {}
    for run in sorted(runs):
        if match := TRANSFORMER.search(run):
            alike.setdefault(TRANSFORMER.sub(f"_w{match[1]}_", run), []).append((int(match[2]), int(match[3]), run))
    for sizes in alike.values():
        for (length, batch, a), (new_length, new_batch, b) in permutations(sizes, 2):
            if length != new_length:
                ratio = new_length * new_batch / (length * batch)
                larger = (whatif.ScaleBatch(new_batch / batch),) if batch != new_batch else ()
                edits = (*larger, whatif.ScaleSequence(to=new_length))
                yield DeclaredPair("sequence", a, b, edits, trivial=ratio)


def _tensors(runs: set[str]) -> Iterator[DeclaredPair]:
    """From one or two replicas to two ranks that divide the layers of one, perhaps with another batch."""
    for b in sorted(runs):
        match = TENSOR.fullmatch(b)
        for a in sorted(runs) if match else ():
            plain = re.fullmatch(rf"{match[1]}(\d+)(?:_mb[\d.]+)?_x([12])_{re.escape(match[3])}", a)  # type: ignore[index]
            if plain:
                ratio = int(match[2]) / int(plain[1])  # type: ignore[index]
                larger = (whatif.ScaleBatch(ratio),) if ratio != 1 else ()
                one = (whatif.WorldSize(2),) if plain[2] == "2" else ()
                yield DeclaredPair("tensor", a, b, (*larger, whatif.TensorParallel(2), *one), trivial=HALVED * ratio)


KINDS = ("sleep", "link", "two hosts", "repeat", "slow rank", "table rows", "sequence", "batch", "dtype", "tensor",
         "blocking", "overlap")  # fmt: skip


@dataclass(frozen=True)
class Predicted:
    """One pair."""

    pair: DeclaredPair  # which
    equal: tuple[float, float]  # share of shapes of the edited graph that B has; FLOPs of the edited graph / B's
    # measured_us, noise_us: the change, and what may be chance
    measured_us: float
    noise_us: float
    predicted_us: float  # the predicted change; ratio_us: the predicted ratio, of A's measured step
    ratio_us: float
    trivial_us: float  # without a model

    @property
    def is_loud(self) -> bool:
        """Whether there is a change to tell."""
        return abs(self.measured_us) > self.noise_us

    def error(self, change_us: float) -> float:
        """Relative to the measured change."""
        return abs(change_us - self.measured_us) / abs(self.measured_us)


def step_us(edited: Edited, graph: ExecutionGraph, constants: AnalyticConstants) -> float:
    """Step time of edited A, on A's hardware with the edits' changes."""
    return recorded.median_step_us(predict_edited(edited, AnalyticPredictor(constants), cluster_for(graph, None, None)))


def given(
    pair: DeclaredPair, graph: ExecutionGraph, other: ExecutionGraph, steps: dict[str, list[float]],
    constants: AnalyticConstants,
) -> Predicted:  # fmt: skip
    """The pair, from the first recording of A; B's is read for shapes only, after the prediction."""
    edited = whatif.apply(graph, pair.edits)
    before_us, after_us = (step_us(each, graph, constants) for each in (unedited(graph), edited))
    a_us, b_us = (float(np.mean(steps[run])) for run in (pair.a, pair.b))
    return Predicted(
        pair, structure(edited.graph, other), b_us - a_us, float(np.ptp(steps[pair.a]) + np.ptp(steps[pair.b])),
        after_us - before_us, (after_us / before_us - 1.0) * a_us,
        pair.trivial_us + pair.wire_us_per_gbit * _sent_gbit(graph) + (pair.trivial - 1.0) * a_us,
    )  # fmt: skip


def structure(edited: ExecutionGraph, other: ExecutionGraph) -> tuple[float, float]:
    """Share of equal shapes, ratio of all FLOPs, in the second step of both."""
    mine, theirs = (graph.step(graph.steps[min(1, len(graph.steps) - 1)].step) for graph in (edited, other))
    matched = align_runs(mine, theirs)
    there = theirs.nodes.iloc[np.maximum(matched, 0)]
    dims, their_dims = (nodes["input_dims"].astype(object).to_numpy() for nodes in (mine.nodes, there))
    has = mine.nodes["input_dims"].notna().to_numpy()
    same = has & (matched >= 0) & (dims == their_dims)
    flops = (np.nansum(one.nodes["flops"].to_numpy()) * one.world_size / len(one.ranks) for one in (mine, theirs))
    return float(same.sum() / has.sum()), float(next(flops) / next(flops))


def outcomes() -> tuple[list[Predicted], list[str]]:
    """Every pair, and what could not be determined."""
    results, graphs = recorded.recordings(), recorded.recorded_graphs()
    constants = {fold.workload: fold.shared for fold in recorded.folds(results, graphs)}
    steps: dict[str, list[float]] = {}
    first: dict[str, str] = {}
    for name, recording in results.items():
        steps.setdefault(recording.run, []).append(recording.unprofiled_us)
        first.setdefault(recording.run, name)
    of_run = {run: graphs[name] for run, name in first.items()}
    result: list[Predicted] = []
    left_out: list[str] = []
    for pair in declared_pairs(set(of_run)):
        own = constants[results[first[pair.a]].workload]
        try:
            result.append(given(pair, of_run[pair.a], of_run[pair.b], steps, own))
        except InputError as error:
            left_out.append(f"{pair.kind}: {pair.a} -> {pair.b}: {error}")
    return result, left_out


ON_GPU, CLEAR, LONGER = Path("datasets/h200"), 0.05, 1.1  # CLEAR: of the step, a change that has an error


def edits_of(pair: Pair, batch: int, steps: Sequence[ExecutionGraph]) -> list[whatif.Edit]:
    """The edits of a pair on a GPU; `batch` of A, `steps` of A and of B."""
    edit = pair.edit
    if pair.change == Change.SLEEP:
        return [whatif.DeclarePause(edit["sleep_us"], edit["rank"], edit["place"])]
    if pair.change == Change.REPEAT:
        calls = repeated_calls(steps[0], steps[1], OpSelector(edit["op"]), edit["times"])
        return [RepeatOp(once, edit["times"]) for once, _ in calls]
    return [whatif.ScaleBatch(edit["to"] / batch)]


def from_trace(pair: Pair, a: Recording, b: Recording, profiler: Profiler) -> np.ndarray:
    """[5] steps in us: A and B measured; without and with the edit predicted; with it trivially predicted."""
    graph, other = (load_graph(run.path, None) for run in (a, b))
    steps = [one.step(one.steps[-1].step) for one in (graph, other)]
    edits = edits_of(pair, int(read_json(a.path / "run.json")["parameters"].get("batch", 0)), steps)
    result = predicted(graph, Request(trace=a.path, profiler=profiler, whatif=edits))
    assert result.whatif is not None
    before, after = ((run.profiled_us if profiler is Profiler.keep else run.unprofiled_us) for run in (a, b))
    edited = whatif.apply(steps[0], edits)
    copies = edited.touched & is_type(edited.graph, *ON_DEVICE)
    trivial = {Change.SLEEP: before + pair.edit.get("sleep_us", 0.0),
               Change.SIZE: before * getattr(edits[0], "factor", 1.0),
               Change.REPEAT: before + np.nansum(edited.graph.nodes["latency_us"].to_numpy()[copies])}  # fmt: skip
    return np.array([before, after, result.step_time_us, result.whatif.step_time_us, trivial[pair.change]])


def print_from_traces() -> None:
    """Rows of pairs, then errors."""
    runs = recorded.first_recordings(ON_GPU)
    pairs = read_pairs(ON_GPU)
    of_kind = {
        kind: np.array([pair.change == kind for pair in pairs]) for kind in (Change.SIZE, Change.SLEEP, Change.REPEAT)
    }
    longer = np.array([runs[pair.a].profiled_us > LONGER * runs[pair.a].unprofiled_us for pair in pairs])
    parts = {str(kind): part for kind, part in of_kind.items()}
    parts |= {
        "size, profiler adds > 10 %": of_kind[Change.SIZE] & longer,
        "size, others": of_kind[Change.SIZE] & ~longer,
    }
    for profiler in Profiler:
        print_head(f"profiler={profiler}", "A ms", "B", "predicted A", "B", "trivial", "error of the step %")
        us = np.array([from_trace(pair, runs[pair.a], runs[pair.b], profiler) for pair in pairs])  # [num_pairs, 5]
        for pair, row in zip(pairs, us, strict=True):
            print_row(pair.b, *(f"{step / 1e3:.2f}" for step in row), f"{100 * (row[3] / row[1] - 1):+.1f}")
        print_head(f"profiler={profiler}", "prediction", *ERROR_COLUMNS, "changes above 5 %: median error %")
        a, b, own, edited, trivial = us.T
        for name, part in parts.items():
            clear = part & (abs(b / a - 1) >= CLEAR)
            for way, step, start in (("edit", edited, own), ("no change", a, a), ("trivial", trivial, a)):
                errors = abs((step - start) / (b - a) - 1)[clear]
                print_row(name, way, *error_texts(step[part], b[part]), f"{100 * np.median(errors):.1f}")


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--trace", action="store_true", help="pairs recorded on a GPU, from A's trace")
    if parser.parse_args(arguments).trace:
        return print_from_traces()
    results, left_out = outcomes()
    show(_summary(results), width=170)
    for line in left_out:
        print(f"left out: {line}")


def _summary(results: Sequence[Predicted]) -> Table:
    table = Table("kind", "pairs", "shapes equal %: mean (least)", "FLOPs off %: mean (most)", "changes above noise",
                  "sign right", "error % (median): difference", "p90", "ratio", "trivial", "nothing")  # fmt: skip
    for kind in KINDS:
        group = [one for one in results if one.pair.kind == kind]
        loud = [one for one in group if one.is_loud]
        if not group:
            continue
        equal, off = (np.array([one.equal[place] for one in group]) for place in (0, 1))
        off = np.abs(off - 1.0)
        right = sum(one.predicted_us * one.measured_us > 0 for one in loud)
        errors = np.array([[one.error(us) for us in (one.predicted_us, one.ratio_us, one.trivial_us)] for one in loud])
        median = np.median(errors, axis=0) if loud else np.full(3, np.nan)
        tail = np.quantile(errors[:, 0], 0.9) if loud else np.nan
        table.add_row(kind, str(len(group)), f"{100 * equal.mean():.1f} ({100 * equal.min():.1f})",
                      f"{100 * off.mean():.2f} ({100 * off.max():.2f})", str(len(loud)), f"{right}/{len(loud)}",
                      *(f"{100 * value:.1f}" for value in (median[0], tail, *median[1:])), "100.0")  # fmt: skip
    return table


if __name__ == "__main__":
    run_main(main)
