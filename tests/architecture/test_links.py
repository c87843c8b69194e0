"""Each page and heading that the documents name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.docs import site

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "DESIGN.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOR_CONTRIBUTORS = sorted((ROOT / ".github").rglob("*.*"))
_MENTION = re.compile(r"\bdocs/[\w/-]+\.md\b")
_LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINKED_MIN, _MENTIONED_MIN = 10, 50  # fewer: the patterns find nothing any more


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown page has for its headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return set(map(site.anchor, headings))


def links() -> Iterator[tuple[Path, Path, str]]:
    """Each link inside the documents: its page, the page that it leads to, and the heading."""
    for page in PAGES:
        for place, heading in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
            yield page, (page.parent / place if place else page), heading


def test_links_lead_to_a_page_and_a_heading() -> None:
    found = list(links())
    assert len(found) >= _LINKED_MIN
    for page, target, heading in found:
        assert target.exists(), f"{page.name} links to {target}"
        assert not heading or heading in anchors(target), f"{page.name}: #{heading}"


def test_each_page_that_is_mentioned_exists() -> None:
    code = [*(ROOT / "eos").rglob("*.py"), ROOT / "spark-submit.sh"]
    texts = {page: page.read_text("utf-8") for page in (*PAGES, *FOR_CONTRIBUTORS, *code)}
    found = [(page, name) for page, text in texts.items() for name in _MENTION.findall(text)]
    assert len(found) >= _MENTIONED_MIN
    missing = [(str(page), name) for page, name in found if not (ROOT / name).is_file()]
    assert not missing
