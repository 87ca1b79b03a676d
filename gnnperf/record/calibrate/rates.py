"""From latencies to a device's numbers: sustained rates, launch floor, and what links do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gnnperf.record.calibrate.interval import Interval
from gnnperf.record.calibrate.job import COPY_BYTES, QUANTITIES, SMALLEST_OP
from gnnperf.record.calibrate.point import Cache, CommPoint, Direction, HostPoint, OpPoint
from gnnperf.record.calibrate.rounds import Result
from gnnperf.record.calibrate.suite import FLOOR_OP

PRODUCTS = ("aten::mm", "aten::bmm", "aten::_scaled_mm")
STREAMS = {"aten::copy_": "copy", "aten::sum": "read", "aten::add.out": "triad"}
PLAIN_DTYPES = {"float8_e4m3fn": "float8"}
MATRIX_UNITS = ("float16", "bfloat16", "float8")  # whose products on a GPU run in matrix units
FAR_BEYOND = 3.0  # times the last-level cache: what a stream moves then comes from memory

Rate = Callable[[Result], float]


def device_time(results: Iterable[Result]) -> list[Result]:
    """Ways without the host's part where there are any (CUDA), else all (CPU: the call is the work)."""
    outcome = list(results)
    apart = [r for r in outcome if not r.way.launch_included]
    return apart or outcome


def inverse(amount: float, latency_us: Interval) -> Interval:
    """amount per second."""
    return Interval(*(amount / us * 1e6 for us in (latency_us.value, latency_us.high, latency_us.low)))


def flops_per_s(results: Iterable[Result], kind: str) -> dict[str, Interval]:
    """Sustained FLOP rate by key of DeviceSpec.flops_per_s: the best of the products of that dtype, warm.

    Keys of GPUs: float32 without, float32_matrix with TF32; float64 and the rest as the library runs them.
    """
    best: dict[str, Interval] = {}
    for result in device_time(results):
        point = result.way.point
        if not isinstance(point, OpPoint) or point.op not in PRODUCTS or point.direction is Direction.BACKWARD:
            continue
        if point.flops is None or result.way.cache is Cache.FLUSHED:
            continue
        key, rate = _rate_key(point, kind), inverse(point.flops, result.latency_us)
        if key not in best or rate.value > best[key].value:
            best[key] = rate
    return best


def _rate_key(point: OpPoint, kind: str) -> str:
    dtype = PLAIN_DTYPES.get(point.dtypes[0], point.dtypes[0])
    in_matrix_units = kind == "gpu" and (dtype in MATRIX_UNITS or (dtype == "float32" and point.tf32))
    return f"{dtype}_matrix" if in_matrix_units else dtype


def bandwidths(results: Iterable[Result], cache_bytes: float) -> dict[str, Interval]:
    """Bytes/s of copy, read and triad: from memory ("copy") and, where all fits, from the cache ("copy_in_cache").

    The best of their sizes: from memory, flushed and at least FAR_BEYOND times the cache; in cache, warm and at most
    half of it.
    """
    best: dict[str, Interval] = {}
    for result in device_time(results):
        point = result.way.point
        if not isinstance(point, OpPoint) or point.op not in STREAMS or point.moved_bytes is None:
            continue
        name = _stream_name(STREAMS[point.op], point.moved_bytes / cache_bytes, result.way.cache)
        rate = inverse(point.moved_bytes, result.latency_us)
        if name is not None and (name not in best or rate.value > best[name].value):
            best[name] = rate
    return best


def _stream_name(stream: str, caches: float, cache: Cache) -> str | None:
    if caches >= FAR_BEYOND and cache is Cache.FLUSHED:
        return stream
    return f"{stream}_in_cache" if caches <= 0.5 and cache is Cache.WARM else None


def launch_floor_us(results: Iterable[Result]) -> Interval:
    """CUDA: the shortest kernel, warm. CPU: the smallest op, called as programs call it (a tensor's method)."""
    outcome = list(results)
    apart = device_time(outcome)
    if len(apart) == len(outcome) and SMALLEST_OP in (costs := host_costs(outcome)):
        return costs[SMALLEST_OP]
    for result in apart:
        point = result.way.point
        if isinstance(point, OpPoint) and point.op == FLOOR_OP and result.way.cache is Cache.WARM:
            return result.latency_us
    raise LookupError(FLOOR_OP)


def host_costs(results: Iterable[Result]) -> dict[str, Interval]:
    """The host's own costs, us, by name."""
    return {r.way.point.quantity: r.latency_us for r in results
            if isinstance(r.way.point, HostPoint) and r.way.point.quantity in QUANTITIES}  # fmt: skip


@dataclass(frozen=True)
class LinkFit:
    """latency + bytes / bandwidth, and how well it fits (largest relative error over the sizes)."""

    latency_us: float
    bandwidth_bytes_per_s: float
    worst_relative_error: float


def fit_link(points: Sequence[tuple[float, float]]) -> LinkFit:
    """Fit (bytes, us) with least squares of *relative* errors, so that small messages count like large ones.

    Minimizes sum((a + b s - t)^2 / t^2) over a >= 0, b > 0.
    """
    weights = [1 / us**2 for _, us in points]
    mean_s, mean_t = _mean(weights, [s for s, _ in points]), _mean(weights, [t for _, t in points])
    spread = sum(w * (s - mean_s) ** 2 for w, (s, _) in zip(weights, points, strict=True))
    if spread == 0:
        raise ValueError("a link needs two sizes")
    slope = sum(w * (s - mean_s) * (t - mean_t) for w, (s, t) in zip(weights, points, strict=True)) / spread
    floor = mean_t - slope * mean_s
    if floor < 0:  # through the origin instead
        floor, slope = 0.0, _mean(weights, [s * t for s, t in points]) / _mean(weights, [s * s for s, _ in points])
    if slope <= 0:
        raise ValueError("larger messages are not slower")
    worst = max(abs(floor + slope * s - t) / t for s, t in points)
    return LinkFit(floor, 1e6 / slope, worst)


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def host_link(results: Iterable[Result]) -> LinkFit | None:
    """From copies between pinned host memory and the device; None on a CPU."""
    costs = host_costs(results)
    outcome = [(float(num_bytes), costs[name].value) for name, num_bytes in COPY_BYTES.items() if name in costs]
    return fit_link(outcome) if len(outcome) > 1 else None


def links(results: Iterable[Result]) -> dict[str, LinkFit]:
    """Link -> fit of its send/receive."""
    points: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        point = result.way.point
        if isinstance(point, CommPoint) and point.op == "send":
            points.setdefault(point.link, []).append((float(point.num_bytes), result.latency_us.value))
    return {link: fit_link(outcome) for link, outcome in points.items() if len(outcome) > 1}
