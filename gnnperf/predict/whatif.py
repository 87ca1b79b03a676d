"""The grammar of `whatif=[...]`: a list of edits, made one after the other.

    whatif=[{latency:{op:aten::mm,factor:0.5}},{straggler:{rank:1,factor:1.3}},{stall:{us:2000}},{batch:{factor:2}}]

An entry names one edit and its settings. `EDITS` has the names; the settings are the fields of the edit's dataclass,
which checks them. On the command line an entry is written without braces:

    batch=2x                             the first setting of the edit; 2x is the number 2
    latency=op:aten::mm,factor:0.5       settings by name
    fuse                                 an edit without settings
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from gnnperf import whatif
from gnnperf.core import InputError, require_numbers
from gnnperf.hardware import section

KEY = "whatif"
EXAMPLE = "whatif=[{latency:{op:aten::mm,factor:0.5}},{straggler:{rank:1,factor:1.3}}]"
ROUTING = "state the program as a plan, as in --plan mixtral_8x7b --set plan.experts.skew=1.2"

EDITS: Mapping[str, type] = {
    "latency": whatif.OpLatency,
    "straggler": whatif.Straggler,
    "stall": whatif.InputStall,
    "pause": whatif.DeclarePause,
    "batch": whatif.ScaleBatch,
    "sequence": whatif.ScaleSequence,
    "dtype": whatif.ChangeDtype,
    "fuse": whatif.FuseElementwise,
    "horizontal": whatif.FuseHorizontally,
    "compress": whatif.CompressMessages,
    "world_size": whatif.WorldSize,
    "tensor": whatif.TensorParallel,
    "block": whatif.Block,
    "overlap": whatif.WaitLater,
    "stream": whatif.MoveToStream,
    "device": whatif.ChangeDevice,
    "link": whatif.ChangeLink,
    "cluster": whatif.ChangeCluster,
    "table_size": whatif.ResizeTables,
}


def read_edits(entries: Sequence[Any]) -> tuple[whatif.Edit, ...]:
    """The edits of a `whatif` list; an entry that is an edit already stays."""
    return tuple(_edit(entry, f"{KEY}[{place}]") for place, entry in enumerate(entries))


def written(edit: whatif.Edit) -> str:
    """An edit as `parse_edit` reads it, e.g. batch=factor:2; of another callable the name of its class."""
    name = next((name for name, kind in EDITS.items() if kind is type(edit)), None)
    if name is None:
        return type(edit).__name__
    settings = fields(edit)  # type: ignore[arg-type]  # every edit of the grammar is a dataclass
    given = {f.name: value for f in settings if (value := getattr(edit, f.name)) != f.default}
    whole = {key: int(value) for key, value in given.items() if isinstance(value, float) and value.is_integer()}
    return f"{name}={','.join(f'{key}:{value}' for key, value in (given | whole).items())}" if given else name


def parse_edit(text: str) -> dict[str, dict[str, int | float | str]]:
    """An entry of the `whatif` list from `NAME`, `NAME=VALUE` or `NAME=SETTING:VALUE,...`.

    Raises:
        InputError: no such edit, or no such setting.
    """
    name, has_value, value = text.partition("=")
    if name not in EDITS:
        raise _unknown(name, f"--what-if {text}")
    if not has_value:
        return {name: {}}
    first, *_ = settings = [f.name for f in fields(EDITS[name])]  # the first one goes without its name
    parts = value.split(",")
    if parts[0].partition(":")[0] not in settings:
        return {name: {first: _value(value)}}
    pairs = [part.partition(":") for part in parts]
    return {name: {key: _value(given) for key, _, given in pairs}}


def _value(text: str) -> int | float | str:
    """A number, a factor such as 2x, or text."""
    plain = text.removesuffix("x") if text[:1].isdigit() else text
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return text


def _edit(entry: Any, where: str) -> whatif.Edit:
    if callable(entry):
        return entry  # an edit, not its description
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise InputError(f"cannot read {entry!r}", where=where, allowed=f"one edit with its settings, as in {EXAMPLE}")
    ((name, settings),) = entry.items()
    if name not in EDITS:
        raise _unknown(str(name), where)
    where = f"{where}.{name}"
    require_numbers(settings, where)
    try:
        edit: whatif.Edit = section(EDITS[name], settings, where)
    except InputError as error:
        if error.where.startswith(where):
            raise
        raise InputError(f"{error.where}: {error.what}", where=where, allowed=error.allowed) from error
    return edit


def _unknown(name: str, where: str) -> InputError:
    if name == "routing":
        return InputError("a trace does not state which ops belong to experts", where=where, remedy=ROUTING)
    near = difflib.get_close_matches(name, EDITS, n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown edit {name!r}", where=where, allowed=", ".join(EDITS), remedy=remedy)
