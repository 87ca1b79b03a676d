"""Gradients that replicas send compressed (torch's DDP communication hooks; Seide et al. 2014, Lin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import require
from gnnperf.graph import DTYPE_BYTES

FLOATING = tuple(sorted(name for name in DTYPE_BYTES if name.startswith(("float", "bfloat"))))
WORK = "what compressing and decompressing cost: no op is added"
SUM = "whether compressed values can be added up on their way (sparse ones are gathered: another collective)"


def check_compression(ratio: float | None, to: str | None, extra_bytes: float) -> None:
    """Refuse both or none of ratio and dtype, and settings that would make messages larger.

    Raises:
        InputError: naming the setting.
    """
    require((ratio is None) != (to is None), "ratio, to of a compression", (ratio, to), "one of the two")
    require(ratio is None or 0 < ratio <= 1, "ratio of a compression", ratio, "above 0, at most 1")
    require(to is None or to in FLOATING, "to of a compression", to, ", ".join(FLOATING))
    require(extra_bytes >= 0, "extra_bytes of a compression", extra_bytes, "0 or more")


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
            check_compression(self.ratio, self.to, self.extra_bytes)

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
