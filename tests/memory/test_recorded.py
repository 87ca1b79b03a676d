"""Whole steps: a perceptron by hand, and recordings whose recorder counted. What torch states of single ops."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from gnnperf.core.errors import InputError
from gnnperf.generate.capturing.api import captured_run
from gnnperf.graph import RankEvents, build_graph
from gnnperf.memory import Part, PeakMemory, effects, recorded, torch_effects
from gnnperf.memory.edits import Autocast, memory_edits
from gnnperf.memory.effects import CannotTell, effect_of, effects_cached_in, is_composite
from gnnperf.memory.measured_memory import Measured, measured_peaks
from gnnperf.memory.recorded import cached_peaks, peak_memory
from gnnperf.memory.step_calls import StepCalls, step_calls
from gnnperf.memory.storages import Slot, TensorSlot
from gnnperf.trace import RunTrace, of_step, read_run
from gnnperf.trace.table import DeviceInfo
from gnnperf.whatif import ChangeDtype, Edit, ScaleBatch

DATASET = Path("datasets/cpu-gloo")
ROWS, WIDTH, HIDDEN = 16, 64, 256
FLOAT = 4


def perceptron() -> Callable[[], object]:
    """x [16, 64] -> 256 -> ReLU -> 64, summed; SGD with momentum, fused."""
    up, down = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)
    optimizer = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.1, momentum=0.9, fused=True)
    data = torch.randn(ROWS, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        down(torch.relu(up(data))).sum().backward()
        optimizer.step()

    return step


def test_a_perceptron_by_hand() -> None:
    (peak,) = peak_memory(captured_run(perceptron, 1))
    weights, hidden, data = 2 * WIDTH * HIDDEN * FLOAT, ROWS * HIDDEN * FLOAT, ROWS * WIDTH * FLOAT
    assert peak.parts_bytes[Part.PARAMETERS] == weights
    assert peak.parts_bytes[Part.OPTIMIZER_STATE] == weights
    assert peak.parts_bytes[Part.INPUTS] == data
    assert peak.held_between_steps_bytes == 3 * weights + data  # gradients stay until the next step
    # In the last product of the backward: both weights' gradients, and that of the hidden vectors, which the
    # ReLU's backward made. There: 64 + 64 + 16 KiB; in the ReLU's backward itself it was 64 + 3 x 16 KiB.
    assert peak.parts_bytes[Part.GRADIENTS] == weights
    assert peak.parts_bytes[Part.ACTIVATIONS] == hidden
    assert peak.at == "aten::mm"
    assert peak.peak_bytes == 3 * weights + data + hidden + peak.parts_bytes[Part.ROUNDING]
    assert peak.unknown == ()


def test_more_batches_held_add_their_bytes() -> None:
    (one,), (three,) = (peak_memory(captured_run(perceptron, 1), batches_held=n) for n in (1, 3))
    assert three.peak_bytes - one.peak_bytes == 2 * ROWS * WIDTH * FLOAT
    with pytest.raises(InputError, match="batches_held"):
        peak_memory(captured_run(perceptron, 1), batches_held=0)


def test_ranks_of_equal_ops_are_followed_once_and_others_each(monkeypatch: pytest.MonkeyPatch) -> None:
    run = captured_run(perceptron, 1)
    (first,), followed = run.tables, []
    later = first.events.assign(start_ns=2 * first.events["start_ns"], duration_ns=2 * first.events["duration_ns"])
    shorter = later.assign(input_dims=later["input_dims"].cat.rename_categories(lambda dims: dims.replace("16", "8")))
    tables = [replace(first, events=events, meta=replace(first.meta, rank=rank))
              for rank, events in enumerate((first.events, later, shorter))]  # fmt: skip

    def follow(events: RankEvents, step: str | None) -> StepCalls:
        followed.append(events.rank)
        return step_calls(events, step)

    monkeypatch.setattr(recorded, "step_calls", follow)
    peaks = peak_memory(replace(run, tables=tuple(tables)))
    assert followed == [0, 2]
    assert [peak.rank for peak in peaks] == [0, 1, 2]
    assert peaks[0].peak_bytes == peaks[1].peak_bytes > peaks[2].peak_bytes


def test_cached_peaks_are_those_of_the_trace_and_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    run, read = captured_run(perceptron, 1), []

    def reader() -> RunTrace:
        read.append(1)
        return run

    def peaks(step: str = "", held: int = 1) -> tuple[PeakMemory, ...] | None:
        return cached_peaks(reader, tmp_path, "a", batches_held=held, step=step)

    first = peaks()
    assert (peaks(), read) == (first, [1])
    assert first is not None
    assert (first[0].peak_bytes, first[0].timeline) == (peak_memory(run)[0].peak_bytes, peak_memory(run)[0].timeline)
    (file,) = tmp_path.glob("peaks-*.json")
    file.write_bytes(file.read_bytes()[:-9])
    assert (peaks(), read) == (first, [1, 1])
    assert peaks(held=2) != first
    no_shapes = replace(run.tables[0], meta=replace(run.tables[0].meta, has_shapes=False))
    assert cached_peaks(lambda: replace(run, tables=(no_shapes,)), None, "b", batches_held=1, step="") is None


# Train runs of split `run`, which the rules were written on; one per program and kind of parallelism.
@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("gpt_l2_w64_s64_b4_x2_lo", 0.005), ("gpt_l2_w128_s64_b4_fsdp_x2_lo", 0.005),
        ("dlrm_t4_r100k_d32_b1024_x2_lo", 0.005), ("resnet_n1_c16_i24_b16_x2_lo", 0.005),
        ("moe_l1_w64_e4_s32_b8_x2_lo", 0.015), ("rl_h64_n512_t4_x2_lo", 0.005),
    ],
)  # fmt: skip
def test_recordings_whose_recorder_counted(name: str, within: float) -> None:
    run = read_run(DATASET / name / "1")
    measured = measured_peaks(run.card)
    for peak in peak_memory(run, batches_held=4):
        assert abs(measured[peak.rank].error(peak)) <= within


def test_the_step_requested_for_is_taken_and_reported() -> None:
    run = read_run(DATASET / "gpt_l2_w64_s64_b4_x2_lo" / "1")
    assert {peak.step for peak in peak_memory(run)} == {"ProfilerStep#5"}
    assert {peak.step for peak in peak_memory(run, step="ProfilerStep#3")} == {"ProfilerStep#3"}
    one = of_step(run, "ProfilerStep#3")
    assert sum(len(table.events) for table in one.tables) < sum(len(table.events) for table in run.tables) / 3
    assert peak_memory(one, step="ProfilerStep#3") == peak_memory(run, step="ProfilerStep#3")
    assert of_step(run, "window") is run and of_step(run, "ProfilerStep#99") == run  # ranks without the mark


def test_a_card_states_what_was_counted_and_a_bad_one_nothing() -> None:
    entry = {"rank": 1, "peak_memory": {"method": "max_memory_allocated", "peak_bytes": 1_000}}
    assert measured_peaks({"ranks": [entry]}) == {1: Measured("max_memory_allocated", 1_000)}
    assert measured_peaks({"ranks": [{"rank": 0}, {"rank": 1, "peak_memory": {"peak_bytes": 0}}]}) == {}
    assert measured_peaks(None) == {}


def test_cuda_counts_buckets_and_rounding_and_a_cpu_recorder_neither() -> None:
    (peak, _) = peak_memory(read_run(DATASET / "gpt_l2_w64_s64_b4_x2_lo" / "1"))
    assert Measured("max_memory_allocated", 1).counted_bytes(peak) == peak.peak_bytes
    counted = peak.peak_bytes - peak.buckets_bytes - peak.parts_bytes[Part.ROUNDING]
    assert Measured("profiler allocations", 1).counted_bytes(peak) == counted
    assert peak.buckets_bytes == peak.parts_bytes[Part.PARAMETERS]  # one copy of all gradients


def test_a_gradient_without_a_recorded_shape_is_passed_over() -> None:
    run = read_run(DATASET / "gpt_l2_w64_s64_b4_x2_lo" / "1")
    table = run.tables[0]
    events = table.events
    unknown = (events["name"] == "torch::autograd::AccumulateGrad").to_numpy()
    written = events["input_types"].astype(object).mask(unknown, '["Undefined"]')  # a tensor the profiler does not know
    types = written.astype("category")
    (peak,) = peak_memory(replace(run, tables=(replace(table, events=events.assign(input_types=types)),)))
    assert peak.parts_bytes[Part.PARAMETERS] == 927_744  # the optimizer's list still shows them


# Train runs of split `run` that differ in their batch, and in their precision.
@pytest.mark.parametrize(
    ("before", "after", "edit"),
    [
        ("resnet_n1_c48_i24_b16_x2_lo", "resnet_n1_c48_i24_b8_x2_lo", ScaleBatch(0.5)),
        ("gpt_l2_w128_s64_b4_fsdp_x2_lo", "gpt_l2_w128_s64_b16_fsdp_x2_lo", ScaleBatch(4.0)),
        ("gpt_l2_w256_s64_b2_tp_x2_lo", "gpt_l2_w256_s64_b4_tp_x2_lo", ScaleBatch(2.0)),
        ("gpt_l1_w128_s64_b8_x2_lo", "gpt_l1_w128_s64_b8_bfloat16_x2_lo", ChangeDtype("bfloat16")),
        ("resnet_n1_c16_i24_b16_x2_lo", "resnet_n1_c16_i24_b16_bfloat16_x2_lo", ChangeDtype("bfloat16")),
    ],
)
def test_an_edited_step_holds_what_the_other_program_held(before: str, after: str, edit: Edit) -> None:
    run, other = (read_run(DATASET / name / "1") for name in (before, after))
    variant = memory_edits(build_graph(run), (edit,), on_gpu=False).variant
    assert variant is not None
    measured = measured_peaks(other.card)
    unchanged = measured_peaks(run.card)
    for peak in peak_memory(run, batches_held=4, variant=variant):
        assert abs(measured[peak.rank].error(peak)) < 0.03
        assert abs(unchanged[peak.rank].peak_bytes / measured[peak.rank].peak_bytes - 1.0) > 0.08


def test_a_variant_that_changes_nothing_is_the_recording() -> None:
    run = read_run(DATASET / "gpt_l2_w128_s64_b4_fsdp_x2_lo" / "1")
    same = Autocast(of="float64", to="bfloat16", on_gpu=False)
    assert peak_memory(run, variant=same) == peak_memory(run)


def test_on_gpus_blocks_are_larger_and_onednn_copies_nothing() -> None:
    run = read_run(DATASET / "resnet_n1_c16_i24_b16_x1_lo" / "1")
    tables = tuple(replace(t, meta=replace(t.meta, devices=(DeviceInfo("any GPU"),))) for t in run.tables)
    (here,), (there,), (traced_there,) = (
        peak_memory(run), peak_memory(run, on_gpu=True), peak_memory(replace(run, tables=tables))
    )  # fmt: skip
    assert there == traced_there
    assert there.parts_bytes.get(Part.TEMPORARY, 0) < here.parts_bytes[Part.TEMPORARY]
    assert there.parts_bytes[Part.ROUNDING] > here.parts_bytes[Part.ROUNDING]
    assert there.peak_bytes % 512 == there.buckets_bytes % 512


def tensor(*shape: int, dtype: str = "float32", grad: bool = True) -> TensorSlot:
    return TensorSlot(shape, dtype, grad)


# op, its arguments, (shape, bytes, input whose memory it shares) of its results, saved inputs and results
Results = list[tuple[tuple[int, ...], int, int | None]]
EFFECTS: list[tuple[str, tuple[Slot, ...], Results, set[int], set[int]]] = [
    ("addmm", (tensor(6), tensor(8, 4), tensor(4, 6), "1", "1"), [((8, 6), 8 * 6 * 4, None)], {1, 2}, set()),
    # The weight's gradient needs the data, the data's is not requested.
    ("mm", (tensor(8, 4, grad=False), tensor(4, 6)), [((8, 6), 8 * 6 * 4, None)], {0}, set()),
    ("relu", (tensor(8, 4),), [((8, 4), 8 * 4 * 4, None)], set(), {0}),
    ("native_layer_norm", (tensor(8, 4), "[4]", tensor(4), tensor(4), "1e-05"),
     [((8, 4), 8 * 4 * 4, None), ((8, 1), 8 * 4, None), ((8, 1), 8 * 4, None)], {0, 1, 2}, {1, 2}),
    ("t", (tensor(8, 4),), [((4, 8), 8 * 4 * 4, 0)], set(), set()),
    ("unbind", (tensor(3, 8), "0"), [((8,), 3 * 8 * 4, 0)] * 3, set(), set()),
    ("add_", (tensor(8, grad=False), tensor(8, grad=False), "1"), [((8,), 8 * 4, 0)], set(), set()),
    ("_to_copy", (tensor(8, 4), "15", "", "", "", "False", ""), [((8, 4), 8 * 4 * 2, None)], set(), set()),  # bfloat16
    ("zeros", ("[3, 2]", "", "", "", ""), [((3, 2), 24, None)], set(), set()),
]  # fmt: skip


@pytest.mark.parametrize(("op", "slots", "expected", "inputs", "results"), EFFECTS)
def test_effects_by_hand(
    op: str, slots: tuple[Slot, ...], expected: Results, inputs: set[int], results: set[int]
) -> None:
    effect = effect_of(f"aten::{op}", slots)
    assert [(r.shape, r.num_bytes, r.of_input) for r in effect.results] == expected
    assert (effect.saved_inputs, effect.saved_results) == (inputs, results)


WITHOUT_COMPILER = """
import sys
from gnnperf.memory import without_compiler
from gnnperf.memory.effects import effect_of
from gnnperf.memory.storages import TensorSlot
without_compiler()
mixed = TensorSlot((8, 4), "float32", True), TensorSlot((8, 4), "float16", True)
print(effect_of("aten::mul", mixed), "torch._dynamo.convert_frame" in sys.modules)
"""


def test_effects_are_the_same_without_the_compiler() -> None:
    """By a process of its own: what torch has loaded stays."""
    mixed = tensor(8, 4), tensor(8, 4, dtype="float16")
    printed = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], check=True, capture_output=True, text=True
    ).stdout
    assert printed == f"{effect_of('aten::mul', mixed)} False\n"


@pytest.mark.parametrize(
    ("op", "slots"),
    [("nonzero", (tensor(8, dtype="bool", grad=False),)), ("add", ()), ("add", ("1",)),
     ("add", (tensor(3), tensor(4), "1"))],
)  # fmt: skip
def test_what_depends_on_numbers_or_the_op_does_not_take_cannot_be_reported(op: str, slots: tuple[Slot, ...]) -> None:
    with pytest.raises(CannotTell):
        effect_of(f"aten::{op}", slots)


def test_composite_ops_are_reported_from_those_that_autograd_sees() -> None:
    names = ("aten::linear", "aten::layer_norm", "aten::addmm", "aten::t", "mine::op", "aten::name")
    assert [is_composite(name) for name in names] == [True, True, False, False, None, None]


def test_a_trace_cannot_have_files_written_or_read(tmp_path: Path) -> None:
    path = tmp_path / "written"
    for name, slots in (
        ("aten::save", ("5", repr(str(path)))),
        ("aten::from_file", (repr(str(path)), "True", "16", "", "", "", "")),
        ("aten::from_file", (repr(str(path)), "True", "16", tensor(16))),
    ):
        with pytest.raises(CannotTell):
            effect_of(name, slots)
    assert not path.exists()


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_cached", effects._Cached())
    effect_of.cache_clear()


def test_effects_are_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("aten::addmm", (tensor(6), tensor(8, 4), tensor(4, 6), "1", "1"))
    unknown = ("aten::no_such_op", (tensor(3),))
    _forget(monkeypatch)
    with effects_cached_in(tmp_path):
        first, composite = effect_of(*call), is_composite("aten::linear")
        with pytest.raises(CannotTell):
            effect_of(*unknown)
    _forget(monkeypatch)
    monkeypatch.setattr(torch_effects, "effect_of", None)  # calling it would be an error
    monkeypatch.setattr(torch_effects, "is_composite", None)
    with effects_cached_in(tmp_path):
        assert effect_of(*call) == first
        assert is_composite("aten::linear") == composite
        with pytest.raises(CannotTell):
            effect_of(*unknown)
    _forget(monkeypatch)


def test_a_damaged_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for damage in (b"", b"{", b'{"effects": {"a": 3}}'):
        _forget(monkeypatch)
        with effects_cached_in(tmp_path):
            effect_of("aten::relu", (tensor(8, 4),))
        (file,) = tmp_path.iterdir()
        assert b"aten::relu" in file.read_bytes()
        file.write_bytes(damage)
    _forget(monkeypatch)
