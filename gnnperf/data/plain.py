"""Reading files of tensors, numbers and text. Nothing in them is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gnnperf.errors import InputError


def load_plain(path: Path, allowed: str) -> Any:
    """What torch.save wrote, on the CPU.

    Args:
        path: the file.
        allowed: what kind of file was expected, for the message.

    Raises:
        InputError: no such file, or one that holds anything but tensors, numbers and text.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=allowed)
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a damaged file can fail anywhere in torch's reader
        raise InputError("not a checkpoint of gnnperf, or damaged", where=str(path), allowed=allowed) from error
