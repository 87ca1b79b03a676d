"""What torch states of single ops; sizes by hand, float32."""

from pathlib import Path

import pytest

from gnnperf.memory import effects, torch_effects
from gnnperf.memory.effects import CannotTell, effect_of, effects_cached_in, is_composite
from gnnperf.memory.storages import Slot, TensorSlot


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
