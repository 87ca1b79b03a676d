"""Front matter of a data set's README.md, as Hugging Face reads it (https://huggingface.co/docs/hub/datasets-cards).

python -m research.recording.data_card datasets/cpu-ops     renews that of a README.md; the text below stays
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from gnnperf.core import files

LICENSE, OTHERS_LICENSE = "apache-2.0", "other"
CONFIGS = {  # name -> its tables in a folder, and what they are rows of
    "events": ("*/*/events.parquet", "recorded"),
    "ops": ("ops.parquet", "measured"),
}
TAGS = ["performance-modeling", "distributed-training", "execution-traces"]
BLOCK = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)


def front_matter(folder: Path) -> str:
    """License, size, tasks and tables, of what the folder holds; without tables the license is that of others."""
    rows = {name: sum(pq.read_metadata(path).num_rows for path in folder.glob(pattern))
            for name, (pattern, _) in CONFIGS.items()}  # fmt: skip
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": pattern}]}
        for name, (pattern, split) in CONFIGS.items()
        if rows[name]
    ]
    card = {
        "license": LICENSE if configs else OTHERS_LICENSE,
        "pretty_name": f"gnnperf {folder.name}",
        "size_categories": [_size(sum(rows.values()))],
        "task_categories": ["tabular-regression", *(["graph-ml"] if rows["events"] else [])],
        "tags": TAGS,
        "configs": configs,
    }
    return f"---\n{yaml.safe_dump(card, sort_keys=False, width=120)}---\n\n"


def with_front_matter(text: str, folder: Path) -> str:
    """A README.md with the front matter of its folder, in place of an earlier one."""
    return front_matter(folder) + BLOCK.sub("", text)


def _size(num_rows: int) -> str:
    """The range that a number of rows is in, as the hub names them."""
    names = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")
    return names[max(0, len(str(num_rows)) - 3)]


def main(folders: Sequence[str]) -> None:
    """Renew the front matter of the named data sets."""
    for folder in map(Path, folders):
        path = folder / "README.md"
        files.write_text(path, with_front_matter(path.read_text(encoding="utf-8"), folder))


if __name__ == "__main__":
    main(sys.argv[1:])
