"""The parts of the documentation's site that mkdocs.yml can't state: a hook of MkDocs.

The tables of docs/README.md are the navigation. Pages that they link outside of docs/, such as
../DESIGN.md, become pages of the site next to the others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

INDEX = "README.md"
_LINK = re.compile(r"\]\(((?:\.\./)?[\w-]+\.md)\)")
_OUTSIDE = "../"


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading as GitHub makes it: links work there and in the site."""
    plain = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
    return re.sub(r"\s", separator, plain)


def sections(index: str) -> dict[str, list[str]]:
    """Return the pages of each section, in the order of its table's first column."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"(?m)^## ", index)[1:]:
        title, *lines = part.splitlines()
        cells = [line.split("|")[1] for line in lines if line.startswith("|")]
        found[title] = [page for cell in cells for page in _LINK.findall(cell)]
    return found


def on_config(config: Any) -> Any:
    """Set the navigation, and anchors such as GitHub's."""
    found = sections((Path(config.docs_dir) / INDEX).read_text(encoding="utf-8"))
    pages = {title: [each.removeprefix(_OUTSIDE) for each in of] for title, of in found.items()}
    config.nav = [INDEX, *({title: of} for title, of in pages.items())]
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the linked pages that are outside of docs/."""
    from mkdocs.structure.files import File

    docs = Path(config.docs_dir)
    for pages in sections((docs / INDEX).read_text(encoding="utf-8")).values():
        for page in pages:
            if page.startswith(_OUTSIDE):
                source, name = (docs / page).resolve(), page.removeprefix(_OUTSIDE)
                files.append(File.generated(config, name, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, **_context: Any) -> str:
    """Point links outside of docs/ to the pages that `on_files` added."""
    return markdown.replace(f"]({_OUTSIDE}", "](")
