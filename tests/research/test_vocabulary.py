"""Identifiers use the words of the field."""

from __future__ import annotations

from pathlib import Path

from research.vocabulary import count, identifiers, private_words


def test_every_identifier_of_a_module_is_listed_once_per_occurrence(tmp_path: Path) -> None:
    path = tmp_path / "told_us.py"
    path.write_text("from a.said import b\n\ndef f(asked: int) -> int:\n    return g(found=asked.cells)\n")
    assert list(identifiers(path)).count("asked") == 2
    assert {"told_us", "b", "f", "g", "found", "cells"} <= set(identifiers(path))


def test_words_are_parts_of_an_identifier_and_terms_of_libraries_do_not_count() -> None:
    assert private_words("AloneAnswer") == {"alone"}
    assert private_words("told_us") == {"told"}
    assert private_words("FileNotFoundError") == private_words("toldest") == set()


def test_fewer_than_a_hundred_identifiers_of_the_former_vocabulary_are_left() -> None:
    assert sum(names.total() for names in count().values()) < 100
