"""Commands as pages show them, taken apart so that they can be held to the real parsers.

README also shows forms: `gnnperf shard TABLES [--top 3]`, and says what a command does, two blanks behind it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from docs.made.markdown import Block, blocks, prose

SHELLS, OUTPUT, SLOW = ("sh", "bash", "console", ""), "text", "slow"
PROGRAMS = ("gnnperf ", "python ", "torchrun ", "srun ", "make ")
_NAME = re.compile(  # a command without what it takes: gnnperf ops predict, gnnperf coverage --choose N, predict.py
    r"gnnperf [a-z-]+( [a-z-]+)?( --[a-z-]+( N| 1| gpu| a b)?)?|gnnperf record (--out DIR --|-- COMMAND)"
    r"|python (predict\.py|-m research\.fitting\S*)"
)
_REMARK = re.compile(r"(?<=\S)\s{2,}(?![-\\]).*$")


def commands_of(text: str) -> Iterator[list[str]]:
    """Words of every command on a page."""
    return (words for words, _ in commands_with_output(text))


def commands_with_output(text: str) -> Iterator[tuple[list[str], tuple[str, ...] | None]]:
    """The same with the lines that the page shows behind the command's block: at its last command, () before it.

    None: the page shows no output of the block, or marks the block as slow (docs/made/tutorial.py compares that).
    """
    every = blocks(text)
    for block, after in zip(every, [*every[1:], None], strict=False):
        lines = list(_lines(block)) if block.language in SHELLS else []
        is_compared = not block.note.startswith(SLOW)
        shown = after.lines if after is not None and after.language == OUTPUT and is_compared else None
        for line in lines:
            yield _words(line), () if shown and line is not lines[-1] else shown


def commands_within(text: str) -> Iterator[list[str]]:
    """Words of commands in the prose and in tables, in backticks; a name of a command or of an option is none."""
    for span in re.findall(r"`([^`\n]+)`", prose(text)):
        if span.startswith(PROGRAMS) and not _NAME.fullmatch(span):
            yield _words(span)


def _lines(block: Block) -> Iterator[str]:
    joined = re.sub(r"\\\n\s*", "", block.text)
    for line in joined.splitlines():
        if line.startswith(PROGRAMS):
            yield line if block.language else _REMARK.sub("", line)


def _words(line: str) -> list[str]:
    """Options in brackets are given, of alternatives the first one."""
    return [_without_brackets(word) for word in shlex.split(line, comments=True)]


def _without_brackets(word: str) -> str:
    if re.match(r"\[[\w-]", word) or (word.endswith("]") and word.count("[") < word.count("]")):
        word = word.removeprefix("[")
        word = word.removesuffix("]") if word.count("[") < word.count("]") else word
        return word.partition("|")[0]
    return word
