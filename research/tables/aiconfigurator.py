"""GEMM tables of ai-dynamo/aiconfigurator (Apache-2.0): 16, 8 and 4 bits, the same shapes on several GPUs.

A CUDA graph of six calls, each on a weight and an input of its own, is replayed, so that no launch cost is inside, and
six working sets share the cache (upstream's collector/sglang/collect_gemm.py: linear without bias). ms per call. A call
in 8 or 4 bits quantizes its 16-bit input first, with a scale per row (fp8), per 128 elements (fp8_block) or per 16
(nvfp4); the weight is quantized before. The result has 16 bits.
"""

from collections.abc import Sequence
from pathlib import Path

from gnnperf.core import read_parquet, untrusted
from research.tables.columns import US_PER_MS, OpTable, completed, joined, product_columns
from research.tables.keep import checked

SOURCE = "ai-dynamo/aiconfigurator"
METHOD = "CUDA-graph replay of six calls in turn"
TURNS = 6
PATTERN = "ai-dynamo+aiconfigurator/aic-core/src/aiconfigurator_core/systems/data/*/gemm/*/*/gemm_perf.parquet"
DTYPES = {"fp8": "float8", "fp8_block": "float8_block", "nvfp4": "float4"}  # the table's name -> ours
OTHER_DTYPE = f"{SOURCE}: another dtype was asked for"


def read_aiconfigurator(mirror: Path, dtypes: Sequence[str] = ("bfloat16",)) -> OpTable:
    """Every GEMM table of a mirror."""
    return joined(_gemm(path, dtypes) for path in sorted(mirror.glob(PATTERN)))


def _gemm(path: Path, dtypes: Sequence[str]) -> OpTable:
    with untrusted.reading(path):
        result = read_parquet(path).to_pandas()
    requested = result[result["gemm_dtype"].isin(list(dtypes))]
    parts = [
        completed(
            {**product_columns("aten::linear", rows["m"], rows["n"], rows["k"], DTYPES.get(str(dtype), str(dtype))),
             "direction": "forward",
             "turns": TURNS, "tf32": False, "cache": "warm", "launch_included": False,
             "device": rows["device"].to_numpy(), "latency_us": rows["latency"] * US_PER_MS, "source": SOURCE,
             "table": f"gemm {DTYPES[str(dtype)]}" if dtype in DTYPES else "gemm", "method": METHOD},
            len(rows),
        )
        for dtype, rows in requested.groupby("gemm_dtype", sort=False)
    ]  # fmt: skip
    tables = [checked(part, ("m", "n", "k")) for part in parts]
    left_out = len(result) - len(requested)
    return joined([*tables, OpTable(completed({}, 0), {OTHER_DTYPE: left_out} if left_out else {})])
