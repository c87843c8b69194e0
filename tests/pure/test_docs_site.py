"""The navigation of the documentation's site, which is made from the tables of docs/README.md."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml
from support.docs import ROOT, site

INDEX = (ROOT / "docs" / site.INDEX).read_text(encoding="utf-8")


def missing(index: str) -> set[str]:
    """Return the pages of docs/ that have no row in a table of the index."""
    listed = {page for pages in site.sections(index).values() for page in pages}
    return {path.name for path in (ROOT / "docs").glob("*.md")} - listed - {site.INDEX}


def test_each_page_has_one_row_and_each_row_a_page() -> None:
    """Otherwise the site's navigation lacks the page, and `.ci/docs` fails."""
    listed = [page for pages in site.sections(INDEX).values() for page in pages]
    assert missing(INDEX) == set()
    assert sorted(listed) == sorted(set(listed))
    assert [page for page in listed if not (ROOT / "docs" / page).is_file()] == []


def test_a_page_without_a_row_is_found() -> None:
    row = next(line for line in INDEX.splitlines() if line.startswith("| [brokers.md]"))
    assert missing(INDEX.replace(row, "")) == {"brokers.md", "security.md"}
    elsewhere = INDEX.replace(row, "| a command | [brokers.md](brokers.md), security.md |")
    assert missing(elsewhere) == {"brokers.md", "security.md"}


def test_the_navigation_has_the_sections_in_their_order() -> None:
    config = SimpleNamespace(docs_dir=str(ROOT / "docs"), mdx_configs={"toc": {"permalink": True}})
    site.on_config(config)
    first, *rest = config.nav
    titles = [title for section in rest for title in section]
    assert first == "README.md"
    assert titles == [line[3:] for line in INDEX.splitlines() if line.startswith("## ")]
    assert {"Concepts": ["DESIGN.md", "restarts.md", "how-dedup-works.md"]} in rest
    assert config.mdx_configs["toc"] == {"permalink": True, "slugify": site.anchor}


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("With another Kafka", "with-another-kafka"),
        ("`ledger_empty`", "ledger_empty"),
        ("SASL / OAUTHBEARER", "sasl--oauthbearer"),
        ("What's in it?", "whats-in-it"),
    ],
)
def test_anchors_are_those_of_github(heading: str, expected: str) -> None:
    assert site.anchor(heading) == expected


def test_links_outside_of_docs_lead_to_the_pages_that_are_added() -> None:
    assert site.on_page_markdown("[d](../DESIGN.md#a), [b](b.md)", page=None) == (
        "[d](DESIGN.md#a), [b](b.md)"
    )


def test_every_kind_of_broken_link_fails_the_build() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["strict"] is True
    assert settings["hooks"] == ["tests/support/docs/site.py"]
    validated = [value for part in settings["validation"].values() for value in part.values()]
    assert set(validated) == {"warn"}
    assert {"omitted_files", "not_found"} <= settings["validation"]["nav"].keys()
    assert {"not_found", "anchors"} <= settings["validation"]["links"].keys()
    assert "site_url" not in settings, "no address is known"
