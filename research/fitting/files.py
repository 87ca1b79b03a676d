"""Writers of files of constants (conf/analytic): beside the old file, then renamed."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.analytic import AnalyticConstants, CollectiveConstants
from gnnperf.analytic.collective.model import CollectiveModel
from gnnperf.analytic.constants_file import rounded
from gnnperf.analytic.device_evidence import Evidence
from gnnperf.analytic.gemm.constants import FAMILIES, VERSION, Members
from gnnperf.core import write_text
from gnnperf.hardware import SEPARATOR, conf_dir, yaml_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

GEMM_DIGITS, COLLECTIVE_DIGITS = 5, 6  # significant


def requested_file(name: str) -> Path:
    """Where a command writes constants: its first argument, else the file of that name in conf/analytic."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else conf_dir("analytic") / name


def write_constants(path: Path, constants: "DataclassInstance", digits: int) -> None:
    """Any constants, their provenance first."""
    values = asdict(constants)
    write_text(path, yaml_text({"provenance": values.pop("provenance"), **rounded(values, digits)}))


def save_constants(constants: AnalyticConstants, path: Path) -> None:
    overheads = {SEPARATOR.join(key): round(value, 3) for key, value in sorted(constants.host_overhead_us.items())}
    raw = {
        "provenance": constants.provenance,
        "device_kind": constants.device_kind,
        "roofline_power": constants.roofline_power,
        "pageable_share": constants.pageable_share,
        "graph_launch_us": _rounded(constants.graph_launch_us),
        "collective_floor_us": constants.collective_floor_us,
        "copy_floor_us": constants.copy_floor_us,
        "lag_us": {kind: _rounded(lags) for kind, lags in constants.lag_us.items()},
        "segment_us": _rounded(constants.segment_us),
        "host_overhead_us": overheads,
        "op_prices": None if constants.op_prices is None else constants.op_prices.to_plain(),
    }
    write_text(path, yaml_text(raw))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 3) for key, value in values.items()}


def save_gemm_constants(constants: Mapping[str, Members], provenance: str, path: Path) -> None:
    raw: dict[str, object] = {"version": VERSION, "provenance": provenance}
    raw |= {family: [rounded(asdict(member), GEMM_DIGITS) for member in constants[family]] for family in FAMILIES}
    write_text(path, yaml_text(raw))


def save_evidence(result: Sequence[Evidence], provenance: str, path: Path) -> None:
    raw = {"provenance": provenance, "evidence": [asdict(one) for one in result]}
    write_text(path, yaml_text(raw, flow=None))


def save_collectives(constants: CollectiveConstants, path: Path) -> None:
    """Write the models of a platform, whole or not at all."""
    raw = {
        "provenance": constants.provenance,
        "measured_inside": asdict(constants.measured_inside),
        "measured_between": asdict(constants.measured_between),
        "between": constants.between,
        "inside": [[largest, link] for largest, link in constants.inside],
        "rings": dict(constants.rings),
        "collective_models": _plain(constants.collective_models),
        "groups": _plain(constants.groups),
    }
    write_text(path, yaml_text(raw, flow=None))


def _plain(models: Mapping[Any, CollectiveModel]) -> dict[str, object]:
    return {SEPARATOR.join(map(str, key)): rounded(asdict(model), COLLECTIVE_DIGITS) for key, model in models.items()}
