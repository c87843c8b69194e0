"""docs/combinations.md: each pair of features in its table is tried, and each setting it names."""

from __future__ import annotations

import re
from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import pytest
import yaml
from support.docs import FEATURES, ROOT, blocks, matrix, refusal, refusals

from eos.config.load import load_pipeline

PAGE = (ROOT / "docs" / "combinations.md").read_text()
PAIRS = tuple(combinations_with_replacement(FEATURES, 2))


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=map("".join, PAIRS))
def test_a_pair_is_accepted_or_refused_as_the_page_says(
    one: str, other: str, tmp_path: Path
) -> None:
    cell, reasons = matrix()[one, other], refusals()
    said = refusal(one if one == other else one + other, tmp_path)
    assert (said == "") == (cell == "+"), said
    assert cell == "+" or reasons[cell] in said


def test_the_table_has_each_pair_twice_and_each_refusal_once() -> None:
    found = matrix()
    assert len(found) == len(FEATURES) ** 2
    assert all(found[other, one] == cell for (one, other), cell in found.items())
    assert set(found.values()) - {"+"} == refusals().keys()


def test_the_page_is_short_and_links_to_it_are_in_the_guides() -> None:
    assert len(PAGE.splitlines()) <= 200
    for name in ("README.md", *(f"docs/{page}.md" for page in linking())):
        assert "docs/combinations.md" in (ROOT / name).read_text(), name


def linking() -> tuple[str, ...]:
    return ("dedup", "stateful", "delta", "dead-letters", "pipelines")


def test_the_page_shows_what_the_files_of_the_chain_say() -> None:
    found = blocks("yaml")
    shown = [yaml.safe_load(text) for name, text in found if name.startswith("combinations")]
    assert len(shown) == len(named())
    for block, name in zip(shown, named(), strict=True):
        file = yaml.safe_load((ROOT / "pipelines" / name / "pipeline.yaml").read_text())
        assert {key: file[key] for key in block} == block


def test_the_pipelines_of_the_chain_fit_each_other() -> None:
    chain = [load_pipeline(ROOT / "pipelines" / name, {}) for name in named()]
    assert [each.name for each in chain] == ["sales_clean", "sales_by_hour", "sales_lake"]
    for before, after in pairwise(chain):
        assert after.source.kafka.topic_names == (before.sink.kafka[0].topic,)


def named() -> list[str]:
    return list(dict.fromkeys(re.findall(r"spark-submit\.sh pipelines/(\w+)/", PAGE)))
