"""Names of devices and processors as strangers write them -> the words of it that name a product.

NVIDIA A100-SXM4-80GB                          as it is
Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz  as it is
Tesla V100 of ann on gpu7.example.org          Tesla V100
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CHARS = 100
_VENDORS = """
NVIDIA GeForce Tesla Quadro TITAN Titan GRID RTX GTX RX AMD Instinct Radeon EPYC Ryzen Threadripper Intel Xeon Core Arc
Data Center Max Flex Gaudi Habana Apple Ampere Altra Neoverse Graviton Google TPU Ascend MTIA ARTEMIS Cambricon MLU
Hygon Jetson Orin Thor Xavier AGX DGX DGXS HGX
"""
_MODELS = """
Ada Lovelace Hopper Blackwell Turing Volta Grace Superchip Generation Edition Server Workstation Laptop Mobile Ti
SUPER Super Pro PRO Q OAM PCIe PCIE NVL MIG VF XT XTX GPU CPU APU Processor Virtual Cores Platinum Gold Silver Bronze
Graphics with
"""
_WORD = re.compile(
    rf"(?i:{'|'.join((_VENDORS + _MODELS).split())})\d?(?:\(R\)|\(TM\))?|@"
    r"|[A-Z]{0,4}\d{1,5}[A-Z]{0,3}\d?[A-Za-z]?|SXM\d?|HBM\d\w?|i\d|v\d|gfx\d[0-9a-f]{1,3}"  # V100, MI300X, 80GB
    r"|\d\.\d{1,2}GHz|\d{1,2}g|\d{1,3}gb|\d{1,2}g\.\d{1,3}gb"
)
_BETWEEN = re.compile(r"[ _/-]+")


@lru_cache(maxsize=1 << 10)
def device_name(name: object) -> str:
    """The name without words that name no product; "" where none does, or it is no text. The catalog's names stay."""
    if not isinstance(name, str):
        return ""
    words = [word for word in _BETWEEN.split(name[:MAX_CHARS]) if word]
    retained = [word for word in words if _WORD.fullmatch(word)]
    if len(retained) == len(words):
        return name[:MAX_CHARS]
    from gnnperf.hardware import match_device  # YAML; most names need no catalog

    known = match_device(name) is not None and name.isprintable()
    return name[:MAX_CHARS] if known else " ".join(retained)
