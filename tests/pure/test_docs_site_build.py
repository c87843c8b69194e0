"""The documentation's site as `.ci/docs` builds it: MkDocs in an environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import release
from support.docs import ROOT, site

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git knows, with the environment of the site."""
    copy = tmp_path_factory.mktemp("site") / "checkout"
    for name in release.tracked(".ci", "docs", "eos/launch", "tests/support", "*.md", "mkdocs.yml"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / ".ci" / "docs"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def test_the_site_has_every_page_and_its_links_lead_to_pages(
    checkout: Path, tmp_path: Path
) -> None:
    built = tmp_path / "site"
    done = build(checkout, built)
    assert done.returncode == 0, done.stderr
    index = (ROOT / "docs" / site.INDEX).read_text(encoding="utf-8")
    pages = [Path(page).stem for each in site.sections(index).values() for page in each]
    assert {path.stem for path in built.glob("*.html")} == {*pages, "index", "404"}
    assert len(pages) > 30  # fewer: the tables are not found any more
    design = (built / "DESIGN.html").read_text(encoding="utf-8")
    assert '<pre class="mermaid">' in design
    for path in built.glob("*.html"):
        requested = re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]*)", path.read_text()
        )
        assert requested == [], path.name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[no heading](install.md#no-such-heading)", "no-such-heading"),
        ("[no file](../LICENSE)", "LICENSE"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(
    checkout: Path, tmp_path: Path, text: str, reason: str
) -> None:
    page = checkout / "docs" / "sinks.md"
    before = page.read_text(encoding="utf-8")
    page.write_text(f"{before}\n{text}\n", encoding="utf-8")
    done = build(checkout, tmp_path / "site")
    page.write_text(before, encoding="utf-8")
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_a_page_without_a_row_fails_the_build(checkout: Path, tmp_path: Path) -> None:
    extra = checkout / "docs" / "unlisted.md"
    extra.write_text("# Unlisted\n", encoding="utf-8")
    done = build(checkout, tmp_path / "site")
    extra.unlink()
    assert done.returncode != 0
    assert "unlisted.md" in done.stdout + done.stderr
