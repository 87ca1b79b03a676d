"""Gradients that replicas send compressed (torch's DDP communication hooks; Seide et al. 2014, Lin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.errors import require
from gnnperf.graph.cost.op_call import DTYPE_BYTES
from gnnperf.plan.compress import CompressMessages


@dataclass(frozen=True)
class Compression:
    """Settings, as those of the edit that compresses a recording's messages.

    Attributes:
        ratio: compressed / uncompressed bytes; None: `to` is given, or nothing is compressed.
        to: dtype that gradients are sent in; casts before and after are in the graph. None: `ratio` is given, or
            nothing is compressed.
        extra_bytes: that come with each message.
    """

    ratio: float | None = None
    to: str | None = None
    extra_bytes: float = 0.0

    def __post_init__(self) -> None:
        require(self.extra_bytes >= 0, "compression.extra_bytes", self.extra_bytes, "0 or more")
        if self.compresses:
            CompressMessages(ratio=self.ratio, to=self.to, extra_bytes=self.extra_bytes)  # refuses what it cannot be

    @property
    def compresses(self) -> bool:
        """Whether anything is."""
        return self.ratio is not None or self.to is not None

    def sent_bytes(self, message_bytes: float, dtype: str) -> float:
        """Of a message of `message_bytes` in `dtype`: the sizes that CompressMessages gives; never more than before."""
        if not self.compresses:
            return message_bytes
        ratio = self.ratio if self.ratio is not None else DTYPE_BYTES[str(self.to)] / DTYPE_BYTES[dtype]
        return message_bytes * ratio + self.extra_bytes if ratio < 1 else message_bytes

    def casts(self, dtype: str) -> bool:
        """Whether values of `dtype` go in another one."""
        return self.to is not None and DTYPE_BYTES[self.to] < DTYPE_BYTES[dtype]
