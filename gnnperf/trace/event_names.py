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

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, printable, schema
from gnnperf.trace.collectives import BACKENDS
from gnnperf.trace.columns import coded
from gnnperf.trace.groups import CHANNEL
from gnnperf.trace.metadata import ranks_of_text
from gnnperf.trace.public_texts import file_name, without_private
from gnnperf.trace.table import TraceTable

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
        numbers, distinct = coded([_group(text, ordinals) for text in schema.categories_of(groups)])
        events = table.events.assign(
            name=_renamed(table.events["name"], table.events["kind"], ordinals),
            group=schema.categorical(np.append(numbers, -1)[schema.codes_of(groups)], distinct),
        )
        warnings = tuple(map(printable, table.meta.warnings))
        meta = replace(table.meta, source_file=file_name(table.meta.source_file), warnings=warnings)
        result.append(replace(table, events=events, meta=meta))
    return result


def _renamed(names: pd.Series, kinds: pd.Series, ordinals: Ordinals) -> pd.Categorical:
    """[num_events] names by the rules of their kinds; each pair of kind and name in use is looked at once."""
    code, kind = schema.codes_of(names), schema.codes_of(kinds)
    texts, words = schema.categories_of(names), schema.categories_of(kinds)
    used = np.zeros((len(words), len(texts)), dtype=bool)  # [num_kinds, num_names]
    used[kind, code] = True
    number = np.full(used.shape, -1, dtype=np.int32)
    name, of_kind = np.nonzero(used.T)
    pairs = [(words[k], texts[n]) for n, k in zip(name.tolist(), of_kind.tolist(), strict=True)]
    ordinals.named |= {pair: public_name(*pair, ordinals) for pair in pairs if pair not in ordinals.named}
    number[of_kind, name], distinct = coded([ordinals.named[pair] for pair in pairs])
    return schema.categorical(number[kind, code], distinct)


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
