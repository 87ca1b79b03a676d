"""Matrix products by formula: hand-computed cases, and what must hold for every product and device."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.gemm import constants as gemms
from gnnperf.analytic.gemm.model import (
    DeviceNumbers,
    gemm_us,
    members_on,
    numbers_of,
    products,
    quantize_us,
    rate_key,
    tiled_us,
)  # fmt: skip
from gnnperf.core.errors import InputError
from gnnperf.hardware import load_device
from research.fitting.files import save_gemm_constants

# Nothing but arithmetic costs anything: the other terms are as good as free.
IDEAL = gemms.GemmConstants(
    compute_share=0.5, flops_per_joule=1e30, boost_power=0.0, throttle_us=1.0, load_bytes_per_flop=1e12,
    quantization=1.0, wave_clocks=1e-9, least_elements=1e-9, lone_tile_share=1e-9, l2_rate=1e12,
    split_us=1e9, l2_share=1.0, l2_sharpness=4.0, memory_share=0.8, overlap_power=50.0, reread_share=1e-12,
    far_share=1e9, far_slowdown=1e-12, floor_clocks=2000.0, launch_us=30.0, launch_power=1.0, tiles="128x128",
)  # fmt: skip
# 10 SMs of 100 GFLOP/s, 1 GHz, 100 GB/s, 1 MB of cache, lanes.
SMALL = DeviceNumbers(*(np.array([v]) for v in (1e12, 1e11, 1e6, 10.0, 1e9, np.inf, np.inf, -1.0, 0.0)))
SIZES = st.integers(1, 5000)
DEVICES = ("p4", "v100_pcie_32gb", "a100_sxm_80gb", "l40s", "h100_sxm", "gb200")


def _us(m: int, n: int, k: int, batch: int = 1, constants: gemms.GemmConstants = IDEAL, launch: bool = False) -> float:
    return float(tiled_us(products(m, n, k, batch), SMALL, (constants,), launch)[0])


@pytest.mark.parametrize(
    ("m", "n", "waves"), [(128, 128, 1), (1, 1, 1), (1280, 128, 1), (1281, 128, 2), (1280, 256, 2)]
)
def test_an_sm_multiplies_whole_tiles_in_whole_waves(m: int, n: int, waves: int) -> None:
    tile_us = 2 * 128 * 128 * 4096 / (0.5 * 1e11) * 1e6  # half of the peak of one SM
    assert _us(m, n, 4096) == pytest.approx(2.0 + waves * tile_us, rel=1e-3)  # 2000 clocks are 2 us


def test_without_quantization_a_wave_costs_its_share() -> None:
    free = replace(IDEAL, quantization=1e-9)
    one, three_halves = _us(1280, 128, 4096, constants=free) - 2.0, _us(1920, 128, 4096, constants=free) - 2.0
    assert three_halves == pytest.approx(1.5 * one, rel=1e-6)


def test_a_product_that_outgrows_the_cache_takes_its_bytes() -> None:
    fast = replace(IDEAL, compute_share=1e9)
    moved = 4 * (16 * 5000 + 5000 * 5000 + 16 * 5000)  # 101 MB against a cache of 1 MB
    assert _us(16, 5000, 5000, constants=fast) == pytest.approx(2.0 + moved / 0.8e5, rel=1e-3)  # bytes per us


def test_calls_in_turn_push_each_other_out_of_the_cache() -> None:
    fast = replace(IDEAL, compute_share=1e9)
    one, six = (tiled_us(products(256, 256, 256, turns=turns), SMALL, (fast,), False)[0] for turns in (1, 6))
    for us, megabytes in ((one, 3 * 0.262144), (six, 6 * 3 * 0.262144)):
        assert us == pytest.approx(2.0 + 786432 / 0.8e5 * megabytes**4 / (1 + megabytes**4), rel=1e-3)


def test_a_power_limit_slows_long_calls_only_and_leaves_the_base_clock() -> None:
    limited = replace(IDEAL, flops_per_joule=1e10, throttle_us=1e3)  # 1e12 FLOP/s at 20 W are five times too many
    device = replace(SMALL, power_limit_w=np.array([20.0]))
    with_base_clock = replace(device, boost_over_base=np.array([1.5]))  # which bounds what the power limit slows
    between = replace(limited, boost_power=0.5)  # no one measured the board: half way between its clocks
    cases = [(device, limited, 1, 1.0), (device, limited, 10**8, 5.0), (device, between, 10**8, 5.0),
             (with_base_clock, limited, 10**8, 1.5), (with_base_clock, between, 10**8, 1.5**0.5)]  # fmt: skip
    for slower, c, k, factor in cases:
        free, slow = (tiled_us(products(1, 1, k), d, (c,), False)[0] - 2.0 for d in (SMALL, slower))
        assert slow / free == pytest.approx(factor, rel=1e-2)


def test_a_power_limit_costs_what_exceeds_the_wait_for_memory() -> None:
    waits = replace(IDEAL, compute_share=1e3, flops_per_joule=1e10)  # five times too many FLOP/s, 7 us of 1,265
    limited = replace(SMALL, power_limit_w=np.array([20.0]))
    free, slow = (tiled_us(products(16, 5000, 5000), d, (waits,), False)[0] for d in (SMALL, limited))
    assert slow == pytest.approx(free)


def test_matrix_units_write_a_tile_after_its_last_step() -> None:
    matrix = replace(SMALL, matrix=np.ones(1))
    us = tiled_us(products(128, 128, 4096), matrix, (replace(IDEAL, l2_rate=2.0),), False)[0]  # 200 GB/s
    assert us - _us(128, 128, 4096) == pytest.approx(4 * 128 * 128 / 2e5, rel=1e-2)


def test_lanes_write_results_while_they_multiply_at_bytes_per_clock_of_each_sm() -> None:
    us = _us(128, 128, 4096, constants=replace(IDEAL, l2_rate=0.01))  # 100 bytes per us of 10 SMs at 1 GHz
    moved = 4 * (2 * 128 * 4096 + 128 * 128)  # 4.3 MB against a cache of 1 MB; 2.7 ms of arithmetic are hidden
    assert us == pytest.approx(2.0 + moved / 100 + moved / 0.8e5 * 4.26**4 / (1 + 4.26**4), rel=1e-3)


def test_adding_up_the_parts_of_k_takes_a_fixed_time() -> None:
    whole_us = _us(128, 128, 40_000) - 2.0  # on one of 10 SMs
    us = [_us(128, 128, 40_000, constants=replace(IDEAL, split_us=split_us)) for split_us in (3.0, 13.0)]
    assert us[1] - us[0] == pytest.approx(10.0)
    assert us[0] - 2.0 - 3.0 == pytest.approx(whole_us / 8, rel=2e-2)


@pytest.mark.parametrize(
    ("dtype", "tf32", "matrix"), [("bfloat16", False, 1), ("float32", False, 0), ("float32", True, 1)]
)
def test_matrix_units_multiply_what_they_take(dtype: str, tf32: bool, matrix: int) -> None:
    assert numbers_of(load_device("a100_sxm_80gb"), dtype, tf32).matrix.tolist() == [matrix]


def test_the_clocks_of_the_data_sheet_bound_throttling() -> None:
    t4, gb200 = (numbers_of(load_device(name), "float32").boost_over_base[0] for name in ("t4", "gb200"))
    assert t4 == pytest.approx(1590 / 585)
    assert np.isinf(gb200)  # no base clock was published


def test_matrix_units_see_a_part_of_a_divided_cache() -> None:
    a100, ada = load_device("a100_sxm_80gb"), load_device("l40s")
    cases = (a100, "bfloat16"), (a100, "float32"), (ada, "float8")
    assert [device.l2_bytes / numbers_of(device, dtype).l2_bytes[0] for device, dtype in cases] == [2, 1, 1]


@pytest.mark.parametrize(("m", "n", "tile", "waves"), [(1, 64, 16 * 64, 1), (129, 9000, 64 * 128, 22)])
def test_serving_kernels_take_the_tile_that_the_result_decides(m: int, n: int, tile: int, waves: int) -> None:
    """(129, 9000) on Ada are 3 x 71 tiles of 64 x 128 on 10 SMs."""
    ada = replace(SMALL, served=np.array([list(gemms.SERVED_TILES).index("ada")]))
    us = tiled_us(products(m, n, 4096), ada, (IDEAL,), False)[0]
    assert us == pytest.approx(2.0 + waves * 2 * tile * 4096 / (0.5 * 1e11) * 1e6, rel=1e-3)


def test_a_launch_comes_before_the_kernel() -> None:
    assert _us(128, 128, 4096, launch=True) == pytest.approx(30.0 + _us(128, 128, 4096))
    hidden = replace(IDEAL, launch_power=50.0)
    assert _us(1, 1, 1, constants=hidden, launch=True) == pytest.approx(30.0, rel=1e-6)


@pytest.mark.parametrize("sizes", [(0, 5, 5, 1), (5, 0, 5, 1), (5, 5, 0, 1), (5, 5, 5, 0)])
def test_an_empty_product_costs_the_floor(sizes: tuple[int, int, int, int]) -> None:
    assert _us(*sizes) == pytest.approx(2.0)
    us = gemm_us(load_device("h100_sxm"), "bfloat16", products(*sizes))
    first = gemms.members_for(gemms.default_gemm_constants()["matrix"], "hopper")[0]
    assert us[0] == pytest.approx(first.floor_clocks / 1980)


@pytest.mark.parametrize("axis", range(4))
@given(sizes=st.tuples(SIZES, SIZES, SIZES, st.integers(1, 64)), more=st.integers(1, 300),
       name=st.sampled_from(DEVICES), dtype=st.sampled_from(["float32", "bfloat16"]))  # fmt: skip
def test_more_work_is_never_faster(
    axis: int, sizes: tuple[int, int, int, int], more: int, name: str, dtype: str
) -> None:
    device = load_device(name)
    dtype = dtype if dtype in device.flops_per_s else "float32"
    larger = [size + more * (place == axis) for place, size in enumerate(sizes)]
    for family in gemms.default_gemm_constants().values():
        before, after = (
            tiled_us(products(s[0], s[1], s[2], s[3], item_bytes=2), numbers_of(device, dtype), family, False)[0]
            for s in (sizes, larger)
        )
        assert after >= before * (1 - 1e-12)


@given(sizes=st.tuples(SIZES, SIZES, SIZES, st.integers(1, 64)), factor=st.floats(1.0, 10.0),
       what=st.sampled_from(["bandwidth_bytes_per_s", "l2_bytes", "power_limit_w"]))  # fmt: skip
def test_more_bandwidth_cache_or_power_is_never_slower(
    sizes: tuple[int, int, int, int], factor: float, what: str
) -> None:
    device = numbers_of(load_device("t4"), "float32")
    better = replace(device, **{what: getattr(device, what) * factor})
    for family in gemms.default_gemm_constants().values():
        before, after = (tiled_us(products(*sizes), d, family, True)[0] for d in (device, better))
        assert after <= before * (1 + 1e-12)


def test_batches_of_float32_products_have_constants_of_their_own() -> None:
    device, both = load_device("v100_pcie_32gb"), products([64, 64], 512, 512, batch=[1, 8])
    family = {name: gemms.members_for(own, "volta") for name, own in gemms.default_gemm_constants().items()}
    single, many = (
        tiled_us(both, numbers_of(device, "float32"), family[f], False) for f in ("vector", "vector_batched")
    )
    assert gemm_us(device, "float32", both).tolist() == [single[0], many[1]]


def test_the_dtype_decides_about_matrix_units() -> None:
    device = load_device("a100_sxm_80gb")
    keys = [rate_key(device, "bfloat16"), rate_key(device, "float32"), rate_key(device, "float32", tf32=True)]
    assert keys == ["bfloat16_matrix", "float32", "float32_matrix"]
    with pytest.raises(InputError, match="no tiled products in float8"):
        numbers_of(device, "float8")
    with pytest.raises(InputError, match="cpu_generic"):
        numbers_of(load_device("cpu_generic"), "float32")


def test_shipped_constants_predict_a_known_rate() -> None:
    us = gemm_us(load_device("a100_sxm_80gb"), "bfloat16", products(8192, 8192, 8192, item_bytes=2))[0]
    assert 0.6 < 2 * 8192**3 / us * 1e6 / 312e12 < 0.95  # of the data sheet


def test_constants_survive_their_file(tmp_path: Path) -> None:
    path, two = tmp_path / "gemm.yaml", (IDEAL, replace(IDEAL, tiles="narrow", kernels="volta"))
    save_gemm_constants(dict.fromkeys(gemms.FAMILIES, two), "by hand", path)
    assert gemms.load_gemm_constants(path) == dict.fromkeys(gemms.FAMILIES, two)
    path.write_text(path.read_text().replace("version: 6", "version: 0"))
    with pytest.raises(InputError, match="version 0"):
        gemms.load_gemm_constants(path)
    save_gemm_constants({**dict.fromkeys(gemms.FAMILIES, two), "matrix": ()}, "by hand", path)
    with pytest.raises(InputError, match="matrix"):
        gemms.load_gemm_constants(path)


def test_members_predict_with_their_geometric_mean() -> None:
    slow = replace(IDEAL, floor_clocks=8000.0)  # 8 us against 2 us
    assert tiled_us(products(0, 1, 1), SMALL, (IDEAL, slow), False)[0] == pytest.approx(4.0)


def test_a_generation_is_predicted_by_the_constants_of_the_kernels_that_it_runs() -> None:
    old, new = replace(IDEAL, kernels="maxwell"), replace(IDEAL, kernels="ampere", tiles="narrow")
    taken = {name: members_on(load_device(name), (old, new), "float32") for name in ("p4", "a100_sxm_80gb", "l4", "t4")}
    assert taken == {"p4": (old,), "a100_sxm_80gb": (new,), "l4": (new,), "t4": (old, new)}  # no one measured Volta's
    assert members_on(load_device("t4"), (IDEAL,), "float32") == (IDEAL,)  # constants of any kernels
    assert members_on(load_device("gb200"), (new, IDEAL), "bfloat16_matrix") == (IDEAL,)  # A100's are no kernels of it


def test_a_generation_has_its_own_kernels_on_matrix_units_and_workstation_boards_those_of_ada() -> None:
    ours, any_kernels = replace(IDEAL, kernels="blackwell"), IDEAL
    assert gemms.members_for((ours, any_kernels), "blackwell") == (ours,)
    assert gemms.members_for((ours, any_kernels), "turing") == (any_kernels,)
    names = {name: gemms.matrix_kernels_of(load_device(name)) for name in ("gb300", "rtx_pro_6000", "l4", "h200")}
    assert names == {"gb300": "blackwell", "rtx_pro_6000": "ada", "l4": "ada", "h200": "hopper"}


def test_quantizing_reads_16_bits_and_long_rows_twice() -> None:
    """10 SMs, 1 GHz, 100 GB/s of which 0.8 are sustained, a cache of 1 MB; instructions as good as free."""
    quantize = gemms.Quantize(start_clocks=3000.0, element_clocks=1e-9, rows_in_flight=1.0)
    constants = replace(IDEAL, quantize=quantize, l2_rate=1e12)
    short, long = (float(quantize_us(products(m, 1, k, item_bytes=1), SMALL, constants, quantize)[0])
                   for m, k in ((10_000, 1000), (100, 1_000_000)))  # fmt: skip
    assert short == pytest.approx(3.0 + 1e7 * 3 / 0.8e5, rel=1e-3)
    assert long == pytest.approx(3.0 + 1e8 * 5 / 0.8e5, rel=1e-2)
    isolated, whole = (tiled_us(products(100, 100, 100, item_bytes=1), SMALL, (constants,), False, quantized=q)[0]
                    for q in (True, False))  # fmt: skip
    assert whole - isolated == pytest.approx(3.0, abs=0.1)


def test_a_device_takes_the_members_for_it() -> None:
    slow = replace(IDEAL, kernels="maxwell", floor_clocks=1e6)
    family = dict.fromkeys(gemms.FAMILIES, (slow, replace(IDEAL, kernels="volta")))
    empty = products(0, 1, 1)
    of_t4, of_p4 = (float(gemm_us(load_device(n), "float32", empty, constants=family)[0]) for n in ("t4", "p4"))
    assert of_t4 == pytest.approx(2000 / 1590, rel=1e-3) and of_p4 == pytest.approx(1e6 / 1063, rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new"),
    [("128x128", "7x7"), ("kernels: any", "kernels: fermi"), ("quantization", "quantisation"), ("0.5", "-1")],
)
def test_a_bad_constant_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "gemm.yaml"
    save_gemm_constants(dict.fromkeys(gemms.FAMILIES, (IDEAL,)), "by hand", path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError):
        gemms.load_gemm_constants(path)
