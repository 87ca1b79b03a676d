"""What torch states of single ops; sizes by hand, float32."""

from pathlib import Path

import pytest

from gnnperf.memory import effects, torch_effects
from gnnperf.memory.effects import CannotTell, effect_of, effects_cached_in, is_composite
from gnnperf.memory.storages import Slot, TensorSlot


def tensor(*shape: int, dtype: str = "float32", grad: bool = True) -> TensorSlot:
    return TensorSlot(shape, dtype, grad)


def test_a_product_with_bias_makes_its_result_and_keeps_both_factors() -> None:
    effect = effect_of("aten::addmm", (tensor(6), tensor(8, 4), tensor(4, 6), "1", "1"))
    assert [r.num_bytes for r in effect.results] == [8 * 6 * 4]
    assert effect.saved_inputs == {1, 2}
    assert not effect.saved_results


def test_what_needs_no_gradient_is_not_retained_for_the_other_factor() -> None:
    effect = effect_of("aten::mm", (tensor(8, 4, grad=False), tensor(4, 6)))
    assert effect.saved_inputs == {0}  # the weight's gradient needs the data, the data's is not requested


def test_relu_keeps_its_result() -> None:
    effect = effect_of("aten::relu", (tensor(8, 4),))
    assert (effect.saved_inputs, effect.saved_results) == (frozenset(), {0})


def test_a_norm_returns_and_keeps_its_statistics() -> None:
    effect = effect_of("aten::native_layer_norm", (tensor(8, 4), "[4]", tensor(4), tensor(4), "1e-05"))
    assert [r.num_bytes for r in effect.results] == [8 * 4 * 4, 8 * 4, 8 * 4]
    assert effect.saved_results == {1, 2}
    assert 0 in effect.saved_inputs


def test_a_view_has_no_memory_of_its_own() -> None:
    (result,) = effect_of("aten::t", (tensor(8, 4),)).results
    assert (result.shape, result.of_input) == ((4, 8), 0)


def test_pieces_of_one_tensor_share_its_memory() -> None:
    results = effect_of("aten::unbind", (tensor(3, 8), "0")).results
    assert [r.of_input for r in results] == [0, 0, 0]


def test_in_place_returns_what_it_was_given() -> None:
    (result,) = effect_of("aten::add_", (tensor(8, grad=False), tensor(8, grad=False), "1")).results
    assert result.of_input == 0


def test_a_cast_halves_the_bytes() -> None:
    (result,) = effect_of("aten::_to_copy", (tensor(8, 4), "15", "", "", "", "False", "")).results
    assert (result.dtype, result.num_bytes) == ("bfloat16", 8 * 4 * 2)


def test_what_depends_on_numbers_cannot_be_reported() -> None:
    with pytest.raises(CannotTell):
        effect_of("aten::nonzero", (tensor(8, dtype="bool", grad=False),))


@pytest.mark.parametrize("slots", [(), ("1",), (tensor(3), tensor(4), "1")])
def test_what_the_op_does_not_take_cannot_be_reported(slots: tuple[Slot, ...]) -> None:
    with pytest.raises(CannotTell):
        effect_of("aten::add", slots)


def test_composite_ops_are_reported_from_those_that_autograd_sees() -> None:
    assert is_composite("aten::linear")
    assert is_composite("aten::layer_norm")
    assert not is_composite("aten::addmm")
    assert not is_composite("aten::t")
    assert not is_composite("mine::op")


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


def test_an_op_that_makes_a_tensor_from_numbers_is_requested() -> None:
    (result,) = effect_of("aten::zeros", ("[3, 2]", "", "", "", "")).results
    assert (result.shape, result.num_bytes) == ((3, 2), 24)


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_cached", effects._Cached())
    for function in (effect_of, is_composite):
        function.cache_clear()


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
