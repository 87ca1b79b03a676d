"""The auxiliary task: which op is a node, where its name is hidden?

A node's own name would tell, and so would its neighbors': the host time before an op carries its name too. So words
are hidden, not nodes: in each graph of a batch some op names are drawn, and every node that has one of them loses what
says so (the words of its op and family, and the numbers made of the op's text). What remains are sizes, prices and
neighbors, as for an op that training has never seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, Vocabulary
from gnnperf.gnn.models.gnn import WORK

OP = FIELDS.index("op_name")
TELLING = (OP, FIELDS.index("family"))
TEXT = [i for i, name in enumerate(WORK_NAMES) if name.startswith("text_")]


@dataclass(frozen=True)
class HiddenOps:
    """A batch without the names of some ops.

    Attributes:
        batch: the graphs to answer for.
        hidden: work type -> [n] bool, nodes that lost their name.
        op: work type -> [n] int64, the names that were there.
    """

    batch: HeteroData
    hidden: dict[str, Tensor]
    op: dict[str, Tensor]


class OpHider:
    """Draws op names to hide.

    Args:
        vocabulary: of the training runs.
        share: of the op names of each graph.
    """

    def __init__(self, vocabulary: Vocabulary, share: float) -> None:
        self.share = share
        names = sorted({word for t in WORK for word in vocabulary.words[t]["op_name"]})
        place = {word: i for i, word in enumerate(names, start=1)}  # over all types; 0: unknown
        self.num_names = len(names) + 1
        self.name = {t: torch.tensor([0, *(place[w] for w in vocabulary.words[t]["op_name"])]) for t in WORK}

    def __call__(self, batch: HeteroData) -> HiddenOps:
        """A shallow copy in which names are hidden; unknown ops have none to hide."""
        drawn = torch.rand(batch.num_graphs, self.num_names) < self.share  # [num_graphs, num_names]
        drawn[:, 0] = False
        left, hidden = batch.__copy__(), {}
        for node_type in WORK:
            store = batch[node_type]
            names = self.name[node_type][store.codes[:, OP].cpu()]  # [n]
            hidden[node_type] = drawn[store.batch.cpu(), names].to(store.x.device)  # [n]
            left[node_type].codes, left[node_type].x = _without_name(store.codes, store.x, hidden[node_type])
        return HiddenOps(left, hidden, {t: batch[t].codes[:, OP] for t in WORK})


def _without_name(codes: Tensor, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """[n, num_fields], [n, num_features], [n] bool -> codes and features; 0 is the mean of a normalized feature."""
    codes, x = codes.clone(), x.clone()
    codes[:, TELLING] = codes[:, TELLING].masked_fill(hidden[:, None], UNKNOWN)
    x[:, TEXT] = x[:, TEXT].masked_fill(hidden[:, None], 0.0)
    return codes, x


def op_class_error(logits: Mapping[str, Tensor], ops: HiddenOps) -> Tensor:
    """Mean cross entropy over the nodes whose name is hidden; 0 without any.

    Args:
        logits: work type -> [n, num_codes] of TypedGNN.op_logits.
        ops: what was hidden.
    """
    errors = [
        torch.nn.functional.cross_entropy(logits[t][ops.hidden[t]], ops.op[t][ops.hidden[t]], reduction="sum")
        for t in WORK
    ]
    count = sum(int(hidden.sum()) for hidden in ops.hidden.values())
    return torch.stack(errors).sum() / max(count, 1)
