"""What the documents say is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from support.docs import toml
from support.docs.messages import CODE, entries, exit_code, page

from eos.inspect import startup_stops
from eos.local.jars import BROKER_VERSIONS

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
STOPS = {name: text for name, text in PAGES.items() if name.startswith("stops-")}
RUNBOOK = PAGES["recovery.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CASE = re.compile(r"^### `([a-z_]+)`$", re.MULTILINE)
LINK = re.compile(r"\]\(([\w-]+\.md)?#([\w-]+)\)")


def test_every_section_about_a_stop_is_about_an_error_that_is_raised() -> None:
    described = [case for text in STOPS.values() for case in CASE.findall(text)]
    assert len(described) == len(set(described))
    assert set(described) <= {entry.code for entry in entries()}


def test_the_page_of_messages_is_what_the_source_says() -> None:
    """Written anew by `PYTHONPATH=tests python -m support.docs.messages > docs/messages.md`."""
    assert PAGES["messages.md"] == page()


def test_each_code_with_a_remedy_in_recover_is_raised() -> None:
    known = {*startup_stops._REMEDIES, *startup_stops._TOPICS, *startup_stops._TABLES}
    assert known <= {entry.code for entry in entries()}


def test_each_code_is_a_name_and_has_one_exit_code() -> None:
    exits: dict[str, set[int]] = {}
    for entry in entries():
        assert CODE.fullmatch(entry.code), entry
        if entry.where != "eos/kafka":  # an answer of Kafka means what its request makes of it
            exits.setdefault(entry.code, set()).add(exit_code(entry.kind))
    assert not {code: found for code, found in exits.items() if len(found) > 1}


def test_the_brokers_that_work_are_those_of_the_tests() -> None:
    jars = toml.loads((ROOT / "pyproject.toml").read_text())["tool"]["eos"]["jars"]
    found = [each for name, jar in jars.items() if name.startswith("broker-") for each in jar]
    versions = {each.rpartition(":")[2] for each in found if ":kafka-clients:" in each}
    works = re.findall(r"(?m)^\| Apache Kafka (\S+) \| works \|", PAGES["brokers.md"])
    assert set(works) == versions
    (oldest, said) = re.findall(r"Apache Kafka (\S+) or later; ([\d., and]+) are tested", README)[0]
    short = {each.rpartition(".")[0] for each in versions}
    assert short == set(re.split(", | and ", said)) == set(BROKER_VERSIONS)
    assert oldest == min(short), "the oldest that is accepted is tested"


def test_the_runbook_links_every_stop() -> None:
    sections = {(name, case) for name, text in STOPS.items() for case in CASE.findall(text)}
    assert sections
    assert sections <= set(LINK.findall(RUNBOOK))
