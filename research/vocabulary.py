"""Counts words of the project's former private vocabulary in identifiers: python -m research.vocabulary [--list WORD].

The words come from the style guide's table of words to avoid. Identifiers are names, attributes, arguments, functions,
classes, imports and modules; an identifier that is a term of a library (`zeros_like`) does not count.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("gnnperf", "research", "tests", "docs")
SCRIPTS = ("train.py", "predict.py")
_TEXT = """
alone anchored asked asks beside beyond carried carries carry cell cells claim claims corridor donor elsewhere
found house kept ladder law lawful laws likeness nobody pace paces planes prices room rooms said says spare
surgery tells told
"""
WORDS = frozenset(re.findall(r"\w+", _TEXT))
# Of Python and of Chromium.
EXTERNAL = frozenset({"FileNotFoundError", "ModuleNotFoundError", "PackageNotFoundError", "captureBeyondViewport"})
_PARTS = re.compile(r"[a-z]+|[A-Z][a-z]*")


def identifiers(path: Path) -> Iterator[str]:
    """Every identifier of a Python file, one per occurrence; the module's own name is the first."""
    yield path.parent.name if path.name == "__init__.py" else path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield name.rpartition(".")[2]


def private_words(identifier: str) -> set[str]:
    """The words of the former vocabulary in an identifier."""
    if identifier in EXTERNAL:
        return set()
    return {part.lower() for part in _PARTS.findall(identifier)} & WORDS


def count(root: Path = ROOT) -> dict[str, Counter[str]]:
    """Word -> identifiers that contain it, with the number of their occurrences."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    counts: dict[str, Counter[str]] = {}
    for path in [*paths, *(root / script for script in SCRIPTS)]:
        for identifier in identifiers(path):
            for word in private_words(identifier):
                counts.setdefault(word, Counter())[identifier] += 1
    return counts


def main() -> int:
    """Print occurrences per word and in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="WORD", help="print the identifiers that contain this word")
    wanted = parser.parse_args().list
    counts = count()
    if wanted:
        for identifier, occurrences in counts.get(wanted, Counter()).most_common():
            print(f"{occurrences:6} {identifier}")
        return 0
    for word, names in sorted(counts.items(), key=lambda item: -item[1].total()):
        print(f"{names.total():6} {word:10} {', '.join(name for name, _ in names.most_common(5))}")
    print(f"{sum(names.total() for names in counts.values()):6} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
