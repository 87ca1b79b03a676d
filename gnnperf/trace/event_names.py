"""Names of events and groups as files have them -> names that outputs may show: an allow-list per kind.

What later packages read are ops, kernels, runtime calls, collectives and the marks of steps, phases and wrappers. These
names pass, without what looks like a path, an address or a secret. A range that a program names itself may say
anything, and nothing reads it: it becomes annotation_1, annotation_2, ... in order of first appearance, so that equal
names stay equal within a run. An op, call or kernel whose name is none becomes op_1, call_1, kernel_1.

    ProfilerStep#7                      ProfilerStep#7
    ## forward:sparse_arch ##           ## forward ##
    FSDP::all_gather (layers.0)         FSDP::all_gather (module_1)
    load /home/ann/data.bin             annotation_1
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, printable
from gnnperf.trace.collectives import BACKENDS
from gnnperf.trace.columns import categorical, coded
from gnnperf.trace.groups import CHANNEL
from gnnperf.trace.metadata import rank_from_name, ranks_of_text
from gnnperf.trace.table import TraceTable

# Texts of strangers and names of files -> what outputs may show of them.
#
# A path, an address, a host, `key=value` and control characters are no part of any name that this program reads.
#
#     void f<float>(int) /home/ann/f.cu:12      void f<float>(int)
#     aten::mm\x1b[31m                          aten::mm
#     gpu7.example.org_4242.1698958768.pt.trace.json      trace.pt.trace.json

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


_SCOPED = r"(?=.*::)(?:[\w.:~<>,&*]|\(anonymous namespace\)| (?=>))++"
_OP = re.compile(rf"(?:autograd::engine::evaluate_function: )?(?:\w+|{_SCOPED})", re.ASCII)
_REGION = re.compile(r"(Torch-Compiled Region|TorchDynamo Cache Lookup|Pregraph bytecode|<(?:forward|backward) op>).*")
_CALL = re.compile(r"\w+(?:::\w+)*|enqueueCommand \w+|runFunction - \w+", re.ASCII)
_KERNEL = re.compile(r"[\w:.~!#$&*,<>()\[\]{}'-]+(?: (?!$)[\w:.~!#$&*,<>()\[\]{}'-]+)*", re.ASCII)
_COPY = re.compile(r"\w+(?: \w+)?(?: \(\w+(?: -> \w+)?\))?", re.ASCII)
_SYNC = re.compile(r"\w+|(?:Context|Stream|Event)(?: (?:Sync|Synchronize|Wait|Event)){1,2}", re.ASCII)
_MARKS = tuple(re.compile(pattern, re.ASCII) for pattern in (
    r"(ProfilerStep#?\s*\d{1,15})(?!\d).*",
    r"(Optimizer\.(?:step|zero_grad)#\w+(?:\.\w+)?)",
    r"(enumerate\(DataLoader\)#\w+\.__next__)",
    r"((?:DistributedDataParallel|FullyShardedDataParallel|DataParallel)\.\w+)",
    r"((?:torch::)?autograd::\w+(?:::\w+)*(?:: \w+)?|c10d::\w+)",
    rf"((?:{'|'.join(BACKENDS)}):\w+(?: \d{{1,9}}(?:->|<-)\d{{1,9}})?)",
    r"(annotation_\d{1,9})",
))  # fmt: skip
_PHASE = re.compile(r"## (forward|backward|optimizer|zero_grad)\b")  # torchrec's
_MODULE = re.compile(r"(FSDP::\w+)(?:( \(| for )(.*?)(\)?))?", re.ASCII)
_OWN_MODULE = re.compile(r"\d{0,9}|module_\d{1,9}", re.ASCII)


@dataclass
class Ordinals:
    """Numbers texts by what they name, in order of first appearance over all ranks of a run; keeps what was decided."""

    known: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    named: dict[tuple[str, str], str] = field(default_factory=dict)  # public names by kind and name

    def name(self, what: str, text: str) -> str:
        """annotation_1, op_2, ...: the same for an equal text."""
        numbers = self.known[what]
        return f"{what}_{numbers.setdefault(text, len(numbers) + 1)}"


def with_public_names(tables: Sequence[TraceTable]) -> list[TraceTable]:
    """The tables of one run with names that outputs may show, of events, groups and files."""
    ordinals, result = Ordinals(), []
    for table in tables:
        groups = table.events["group"]
        numbers, distinct = coded([_group(text, ordinals) for text in groups.cat.categories.tolist()])
        events = table.events.assign(
            name=_renamed(table.events["name"], table.events["kind"], ordinals),
            group=categorical(np.append(numbers, -1)[groups.cat.codes.to_numpy()], distinct),
        )
        warnings = tuple(map(printable, table.meta.warnings))
        meta = replace(table.meta, source_file=file_name(table.meta.source_file), warnings=warnings)
        result.append(replace(table, events=events, meta=meta))
    return result


def _renamed(names: pd.Series, kinds: pd.Series, ordinals: Ordinals) -> pd.Categorical:
    """[num_events] names by the rules of their kinds; each pair of kind and name in use is looked at once."""
    code, kind = names.cat.codes.to_numpy(), kinds.cat.codes.to_numpy()
    texts, words = names.cat.categories.tolist(), kinds.cat.categories.tolist()
    used = np.zeros((len(words), len(texts)), dtype=bool)  # [num_kinds, num_names]
    used[kind, code] = True
    number = np.full(used.shape, -1, dtype=np.int32)
    name, of_kind = np.nonzero(used.T)
    pairs = [(words[k], texts[n]) for n, k in zip(name.tolist(), of_kind.tolist(), strict=True)]
    ordinals.named |= {pair: public_name(*pair, ordinals) for pair in pairs if pair not in ordinals.named}
    number[of_kind, name], distinct = coded([ordinals.named[pair] for pair in pairs])
    return categorical(number[kind, code], distinct)


def public_name(kind: str, name: str, ordinals: Ordinals) -> str:
    """One event's name as outputs show it; `kind` is an EventKind."""
    text = printable(name)
    result = _mark(text, ordinals) if kind in (EventKind.ANNOTATION, EventKind.CPU_OP) else None
    if result is None and kind != EventKind.ANNOTATION:
        region = _REGION.fullmatch(text)
        plain = without_private(text)
        is_sentence = kind == EventKind.KERNEL and " " in plain and not re.search(r"[(<]|::", plain)
        is_name = _GRAMMAR[EventKind(kind)].fullmatch(plain) is not None and not is_sentence
        result = region[1] if region else plain if is_name else None
    return ordinals.name(_PLACEHOLDER.get(kind, kind), name) if result is None else result


_GRAMMAR = {
    EventKind.CPU_OP: _OP, EventKind.RUNTIME: _CALL, EventKind.KERNEL: _KERNEL, EventKind.MEMCPY: _COPY,
    EventKind.MEMSET: _COPY, EventKind.SYNC: _SYNC,
}  # fmt: skip
_PLACEHOLDER: dict[str, str] = {EventKind.CPU_OP: "op", EventKind.RUNTIME: "call"}


def _mark(text: str, ordinals: Ordinals) -> str | None:
    """A range that later packages read, or that a wrapper of torch's names; None: another."""
    for pattern in _MARKS:
        if result := pattern.fullmatch(text):
            return result[1]
    if phase := _PHASE.match(text):
        return f"## {phase[1]} ##"
    module = _MODULE.fullmatch(text)
    if module is None or module[2] is None:
        return module and module[1]
    named = module[3] if _OWN_MODULE.fullmatch(module[3]) else ordinals.name("module", module[3])
    return f"{module[1]}{module[2]}{named}{module[4]}"


def _group(text: str, ordinals: Ordinals) -> str:
    """The ranks of a process group, a channel or a number; a name that the program gives it is numbered."""
    is_known = ranks_of_text(text) or CHANNEL.fullmatch(text) or re.fullmatch(r"group_\d{1,9}|\d{1,20}", text, re.ASCII)
    return text if is_known else ordinals.name("group", text)
