"""`gnnperf devices`: the catalog of hardware, with the evidence behind predictions for each device."""

import argparse
from typing import TYPE_CHECKING

from gnnperf.core import Subparsers, add_command, console, to_json, write_out

if TYPE_CHECKING:
    from rich.table import Table

    from gnnperf.analytic.device_evidence import DeviceEvidence

DESCRIPTION = """\
Every device of the catalog (conf/hardware), and what predictions for it rest on:

  measured     the analytical model's constants were fitted on ops that were measured on this device
  few-shot     ... on few of them
  zero-shot    by specification: nothing of this device was measured

Collectives: the fitted models that its default cluster names, else links by specification.
A GPU of your own is a .yaml file of vendor numbers: gnnperf predict trace.json.gz --gpu mine.yaml.
"""
EXAMPLES = """\
gnnperf devices
gnnperf devices --json
"""
WIDTH = 160
HALVES = ("bfloat16_matrix", "float16_matrix", "float16")  # dense rates of 16 bits, the first that a device has


def add_parsers(subparsers: Subparsers) -> None:
    """Add `devices`."""
    add_command(subparsers, "devices", "the catalog of hardware, with the evidence behind predictions", DESCRIPTION,
                EXAMPLES, _run)  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    from gnnperf.analytic.device_evidence import catalog_evidence

    result = catalog_evidence()
    if arguments.json:
        write_out(to_json([_document(one) for one in result], indent=1))
    else:
        console(width=WIDTH).print(_table(result))


def _table(result: "list[DeviceEvidence]") -> "Table":
    from rich.table import Table

    shown = Table("device", "architecture", "memory\nGB", "GB/s", "float32\nTFLOP/s", "16 bit\nTFLOP/s", "evidence",
                  "rows that constants were fitted on, or what is next to it", "collectives")  # fmt: skip
    for one in result:
        device = one.device
        half = next((rate for key in HALVES if (rate := device.flops_per_s.get(key))), float("nan"))
        numbers = (device.memory_bytes / 2**30, device.memory_bandwidth_bytes_per_s / 1e9,
                   device.flops_per_s["float32"] / 1e12, half / 1e12)  # fmt: skip
        sentences = [_short(number) for number in numbers]
        shown.add_row(device.name, device.architecture or "", *sentences, str(one.standing), one.statement,
                      one.collective_models_name or "specification")  # fmt: skip
    return shown


def _short(number: float) -> str:
    return "" if number != number else f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _document(one: "DeviceEvidence") -> dict[str, object]:
    device = one.device
    return {
        "device": device.name, "kind": device.kind, "architecture": device.architecture,
        "memory_bytes": device.memory_bytes, "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "flops_per_s": dict(device.flops_per_s), "standing": str(one.standing),
        "evidence": [vars(each) for each in one.evidence], "next_to": list(one.next_to), "same_chip": one.same_chip,
        "says": one.statement, "collective_models": one.collective_models_name,
    }  # fmt: skip
