r"""Texts of strangers and names of files -> what outputs may show of them.

A path, an address, a host, `key=value` and control characters are no part of any name that this program reads.

    void f<float>(int) /home/ann/f.cu:12      void f<float>(int)
    aten::mm\x1b[31m                          aten::mm
    gpu7.example.org_4242.1698958768.pt.trace.json      trace.pt.trace.json
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePath

from gnnperf.core import printable

ENDINGS = re.compile(r"(?:\.(?:pt|trace|json|gz|zip|tar|tgz|parquet|et|sqlite))+$", re.I)
_HOST = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:\.[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)*"
_PRIVATE = re.compile(
    r"(?<!\S)[^\s/\\@=%?\"`^;]*[/\\@=%?\"`^;]\S*"  # paths, URLs, user@host, key=value
    rf"|(?<![\w:.<>-])(?:{_HOST}:[0-9]{{2,5}}(?!\w)|(?=[^\s-]*[.-][A-Za-z0-9]){_HOST}(?![\w:.<>(-]))"  # hosts, ports
    r"|\b(?:(?:hf|gh[oprsu]|xox[a-z])[_-][A-Za-z0-9]|github_pat_|AKIA|eyJ)[\w-]{15,}"  # tokens, by their issuers
)
_HINTS = (*'/\\@=%?"`^;.-', "hf_", "gh", "xox", "pat_", "AKIA", "eyJ")  # one of which is in all of it
NEUTRAL = "trace"
_WORKER = re.compile(r"(.+)\.[0-9]{10,20}")  # of torch's tensorboard_trace_handler: <worker>.<ms or ns>
_HOST_AND_PID = re.compile(r".+_[0-9]+")  # its worker, where the caller names none
_DOMAIN = re.compile(r"@|\.[A-Za-z]{2,}(?:$|[^A-Za-z0-9])|(?<![0-9])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9])")
HOMES = ("home", "Users")


def without_private(text: str) -> str:
    """The text without what looks like a path, an address, a host, `key=value` or a token; single spaces."""
    plain = printable(text)
    may_be = any(hint in plain for hint in _HINTS) or re.search(":[0-9]", plain)
    return " ".join((_PRIVATE.sub(" ", plain) if may_be else plain).split())


def run_name(path: Path) -> str:
    """The name of a run: that of its file or folder without endings; of a numbered recording (<run>/<repeat>) both.

    Names that hosts and people have are replaced, as in `file_name`. A host's name without its domain looks like any
    other name: what the user calls a file or a folder is shown.
    """
    full = path.resolve()
    if full.name.isdecimal() and full.parent.name:
        return f"{_stem(full.parent)}/{full.name}"
    return _stem(full)


def _stem(path: Path) -> str:
    return NEUTRAL if path.parent.name in HOMES else file_name(ENDINGS.sub("", path.name)) or NEUTRAL


def file_name(name: str) -> str:
    """The base name of a trace file as outputs show it.

    `<host>_<pid>.<time>` of torch's handler, a name with a domain, an address or user@host, and whatever stands next to
    a rank and a dot become `rank_<n>` where the name states a rank, else `trace`. The handler's time is left out.
    """
    base = printable(PurePath(name).name)
    stem = ENDINGS.sub("", base)
    endings, handler = base[len(stem) :], _WORKER.fullmatch(stem)
    worker = handler[1] if handler else stem
    rank = rank_from_name(worker)
    if (handler and _HOST_AND_PID.fullmatch(worker)) or _DOMAIN.search(worker) or (rank is not None and "." in worker):
        worker = NEUTRAL if rank is None else f"rank_{rank}"
    return worker + endings


def file_names(paths: Iterable[PurePath]) -> list[str]:
    """A name for each path, its folders included; equal ones are numbered."""
    counts: dict[str, int] = {}
    names = []
    for path in paths:
        name = "/".join(map(file_name, path.parts))
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return names


RANK_WORDS = ("rank", "worker", "eg", "et")


def rank_from_name(name: str) -> int | None:
    """The rank a file's name states: rank_3, rank-3, worker3, dlrm_eg_3, pytorch_et_3; None otherwise."""
    base = PurePath(name).name
    for word in RANK_WORDS:
        match = re.search(rf"(?:^|[^a-z]){word}[-_. ]?([0-9]{{1,6}})(?![0-9])", base, re.I)
        if match:
            return int(match.group(1))
    return None


# Names of devices and processors as strangers write them -> the words of it that name a product.
#
# NVIDIA A100-SXM4-80GB                          as it is
# Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz  as it is
# Tesla V100 of ann on gpu7.example.org          Tesla V100

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
