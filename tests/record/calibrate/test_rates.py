"""Rates from latencies, by hand."""

import pytest

from gnnperf.hardware import Measured
from gnnperf.record.calibrate import rounds
from gnnperf.record.calibrate.point import Cache, CommPoint, Direction, HostPoint, Point
from gnnperf.record.calibrate.rounds import Result, Way, bandwidths, fit_link, flops_per_s, launch_floor_us
from gnnperf.record.calibrate.suite import floor_point, product, streams


def result(point: Point, us: float, cache: Cache = Cache.WARM, launch_included: bool = True) -> Result:
    return Result(Way(point, cache, launch_included), Measured(us, us * 0.8, us * 1.25), (us,) * 5, 15)


def test_the_best_product_of_a_dtype_is_its_rate():
    results = flops_per_s(
        [
            result(product(10, 10, 10, "float32"), 20.0),  # 2000 FLOP in 20 us: 1e8
            result(product(100, 100, 100, "float32"), 1000.0),  # 2e6 FLOP in 1000 us: 2e9
            result(product(100, 100, 100, "float32"), 100.0, Cache.FLUSHED),
            result(product(100, 100, 100, "float32", direction=Direction.BACKWARD), 100.0),
        ],
        "cpu",
    )
    rate = results["float32"]
    assert (rate.value, rate.low, rate.high) == pytest.approx((2e9, 1.6e9, 2.5e9))


def test_keys_on_a_gpu_name_matrix_units():
    points = [product(8, 8, 8, "float32"), product(8, 8, 8, "float32", tf32=True), product(8, 8, 8, "bfloat16")]
    assert set(flops_per_s([result(p, 1.0) for p in points], "gpu")) == {"float32", "float32_matrix", "bfloat16_matrix"}
    assert set(flops_per_s([result(p, 1.0) for p in points[2:]], "cpu")) == {"bfloat16"}


def test_device_time_is_preferred_to_host_time():
    results = [result(floor_point(), 9.0), result(floor_point(), 2.0, launch_included=False)]
    assert launch_floor_us(results).value == 2.0
    smallest = result(HostPoint("smallest_op_host_us"), 0.6)
    assert launch_floor_us([*results, smallest]).value == 2.0
    assert launch_floor_us([results[0], smallest]).value == 0.6  # CPU: the call is the work
    with pytest.raises(LookupError):
        launch_floor_us([])


def test_memory_and_cache_bandwidth_are_retained_apart():
    small, large = next(iter(streams(1000))), next(iter(streams(100_000)))  # copies move twice that
    given = [result(small, 1.0), result(small, 2.0, Cache.FLUSHED), result(large, 400.0, Cache.FLUSHED)]
    results = bandwidths(given, 10_000)
    assert {name: rate.value for name, rate in results.items()} == pytest.approx({"copy_in_cache": 2e9, "copy": 5e8})


def test_a_link_is_latency_and_bandwidth():
    fit = fit_link([(1e3, 11.0), (1e4, 20.0), (1e6, 1010.0)])  # 10 us + 1 ns per byte
    assert (fit.latency_us, fit.bandwidth_bytes_per_s) == pytest.approx((10.0, 1e9))
    assert fit.worst_relative_error == pytest.approx(0.0, abs=1e-9)


def test_a_link_whose_latency_would_be_negative_goes_through_the_origin():
    fit = fit_link([(1e3, 0.5), (1e4, 10.0), (1e5, 120.0)])
    assert fit.latency_us == 0.0
    assert fit.bandwidth_bytes_per_s > 0


def test_one_size_or_faster_large_messages_are_no_link():
    with pytest.raises(ValueError, match="two sizes"):
        fit_link([(1e3, 5.0), (1e3, 6.0)])
    with pytest.raises(ValueError, match="not slower"):
        fit_link([(1e3, 50.0), (1e6, 5.0)])


def test_links_come_from_send_and_receive():
    results = rounds.links(
        [result(CommPoint("send", size, (0, 1), "lo"), us) for size, us in ((1000, 11.0), (100_000, 110.0))]
        + [result(CommPoint("all_reduce", 1000, (0, 1), "lo"), 500.0)]
    )
    assert set(results) == {"lo"}
    assert results["lo"].bandwidth_bytes_per_s == pytest.approx(1e9)


def test_copies_to_the_device_make_the_host_link():
    costs = [result(HostPoint("copy_to_device_64KiB_us"), 10 + 65.536),
             result(HostPoint("copy_to_device_256MiB_us"), 10 + 268_435.456)]  # fmt: skip
    results = rounds.host_link(costs)
    assert results is not None
    assert (results.latency_us, results.bandwidth_bytes_per_s) == pytest.approx((10.0, 1e9))
    assert rounds.host_link(costs[:1]) is None
