"""What mkdocs is given while it builds the site: the pages and pictures that the code makes, and where links lead."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File

from docs.made.pages import DOCUMENTS, MADE, ROOT, with_links_of_site
from docs.made.pictures import PICTURES


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add what is no file below docs/."""
    texts = {page: make() for page, make in MADE.items()}
    texts |= {page: (ROOT / document).read_text(encoding="utf-8") for document, page in DOCUMENTS.items()}
    texts |= {f"pictures/{name}.svg": draw() for name, draw in PICTURES.items()}
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they hold in the repository become links of the site."""
    return with_links_of_site(markdown, page.file.src_uri)
