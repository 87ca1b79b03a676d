"""Prose of the pages: short sentences, and words of the field."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md", "BENCHMARKS.md")),
                *(ROOT / "docs").rglob("*.md")])  # fmt: skip
MOST_WORDS = 30
# A sentence ends before a capital, a digit or markup. Not after these:
ABBREVIATIONS = ("al.", "e.g.", "i.e.", "vs.", "cf.", "no.", "fig.", "sec.", "approx.")
FORMER = (  # words that only the former pages used in these senses
    "told|tells|said|says|asked|asks|nobody|somebody|everybody|beside|alone|found|paces?|cells?|rooms?|elsewhere|ladders?|"
    "lawful|likeness|anchored|surgery|donors?|corridors?|houses?|gates?|planes|prices|spare"
)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of paragraphs and list items: without code, tables and headings; links by their text."""
    text = re.sub(r"(?ms)^```.*?^```$|<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text)
    block: list[str] = []
    begin = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        is_item = bool(re.match(r"\s*([-*]|\d+\.) ", line))
        ends = not line.strip() or line.lstrip().startswith(("|", "#", "<", "!!!", ":::")) or is_item
        ends = ends or (line.startswith("    ") and not block)
        if ends and block:
            yield begin, " ".join(block)
            block = []
        if is_item or not ends:
            begin = begin if block else number
            block.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip())


def plain(text: str) -> str:
    """Code as one word, links as their text."""
    text = re.sub(r"`[^`]*`", "Code", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Sentences of one paragraph."""
    start = 0
    for end in re.finditer(r"(?<=[.?!])[\")*_]* +(?=[A-Z0-9(\"*_])", text):
        last = text[start : end.start()].rsplit(" ", 1)[-1].lower()
        if not last.endswith(ABBREVIATIONS):
            yield text[start : end.start()]
            start = end.end()
    yield text[start:]


def long_sentences(text: str) -> list[str]:
    """Each as "line: words: sentence"."""
    return [f"{line}: {count}: {sentence}" for line, block in prose(text) for sentence in sentences(plain(block))
            if (count := len(re.findall(r"\S*\w\S*", sentence))) > MOST_WORDS]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_longer_than_thirty_words(page: Path) -> None:
    assert long_sentences(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_of_the_former_pages_are_gone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rows = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.startswith(("#", "|"))]
    words = re.compile(rf"(?i)\b({FORMER})\b")
    assert [(line, match[0]) for line, block in [*prose(text), *rows] for match in words.finditer(plain(block))] == []


def test_sentences_are_counted_without_code_tables_and_links() -> None:
    long = "word " * 30 + "`a b c`. Next one."
    assert [entry.split(":")[:2] for entry in long_sentences(f"# T\n\n{long}\n\n| {long} |\n\n    {long}\n")] == [
        ["3", " 31"]
    ]
    assert long_sentences("See [Lin](a b c). W" + "word " * 29 + "end.\n") == []
    assert len(long_sentences("As Lin et al. 2022 " + "word " * 26 + "end.\n")) == 1  # no sentence ends behind "al."
    assert len(long_sentences("- " + "word " * 31 + "\n- " + "word " * 20)) == 1
