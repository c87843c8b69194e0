"""What the repository's host, package indexes and pre-commit read is what the project does."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from support import release
from support.docs import ROOT, toml

import eos
from eos.launch import relock_python
from eos.local import java
from eos.local.jars import BROKER_VERSIONS

PROJECT: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [f"3.{n}" for n in range(30) if f"3.{n}" in SpecifierSet(PROJECT["requires-python"])]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
FORMS = [
    path
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    if path.name != "config.yml"
]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
RUNS = re.findall(r"(?m)^  ([a-z-]+)\)$", (ROOT / "tests" / "run").read_text())
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        yield from ((f"{name}: {job}", each) for job, each in workflow["jobs"].items())


def commands() -> list[list[str]]:
    steps = [step for _, job in jobs() for step in job["steps"] if "run" in step]
    return [shlex.split(line) for step in steps for line in step["run"].strip().splitlines()]


def unknown(words: list[str]) -> str:
    """Return why the command can't run in a checkout, or an empty text."""
    program = ROOT / words[0]
    if "/" not in words[0] or not program.is_file() or not os.access(program, os.X_OK):
        return f"{words[0]} is no program of the checkout"
    if program == ROOT / "tests" / "run" and words[1] not in RUNS:
        return f"tests/run does not know {words[1]}"
    for option, value in itertools.pairwise(words):
        if option == "-k" and not list((ROOT / "tests").rglob(f"{value}*.py")):
            return f"no test is named {value}"
    return ""


def test_workflows_run_programs_of_the_checkout() -> None:
    found = commands()
    assert [reason for words in found if (reason := unknown(words))] == []
    assert {words[1] for words in found if words[0] == "./tests/run"} == {
        *("quick", "all", "long", "nightly")  # spark-reader is a part of nightly, bench of nothing
    }


@pytest.mark.parametrize(
    "line", ["make tests", "./tests/runs all", "./tests/run everything", ".ci/run -k test_gone"]
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert unknown(line.split())


def test_jobs_are_bounded_and_may_only_read() -> None:
    assert WORKFLOWS
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
    for name, job in jobs():
        assert 0 < job["timeout-minutes"] <= 360, name  # the host's own limit


def test_each_supported_python_and_java_is_tested() -> None:
    matrix = WORKFLOWS["tests.yml"]["jobs"]["all"]["strategy"]["matrix"]
    assert matrix == {"python": PYTHONS, "java": list(java.VERSIONS)}
    assert WORKFLOWS["tests.yml"]["jobs"]["quick"]["strategy"]["matrix"] == {"python": PYTHONS}
    listed = [each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if ":: 3." in each]
    assert listed == PYTHONS == list(relock_python.PYTHONS)


def test_each_older_broker_is_tested_at_night_and_the_oldest_also_without_the_host() -> None:
    older = list(BROKER_VERSIONS[1:])
    matrix = WORKFLOWS["nightly.yml"]["jobs"]["older-brokers"]["strategy"]["matrix"]
    assert matrix == {"kafka": older}
    assert f"./tests/run all --kafka {older[-1]} -k" in (ROOT / "tests" / "run").read_text()


def test_the_tools_of_all_workflows_are_among_the_tested_ones() -> None:
    for name, job in jobs():
        for step in job["steps"]:
            given = {k: str(v) for k, v in step.get("with", {}).items() if "${{" not in str(v)}
            assert given.get("python-version", PYTHONS[0]) in PYTHONS, name
            assert int(given.get("java-version", java.VERSIONS[0])) in java.VERSIONS, name


def test_issue_forms_have_what_the_host_requires() -> None:
    assert FORMS
    for path in FORMS:
        form = yaml.safe_load(path.read_text())
        assert form["name"], path
        assert form["description"], path
        questions = [each for each in form["body"] if each["type"] != "markdown"]
        assert len({each["id"] for each in questions}) == len(questions) > 0, path
        assert all(each["attributes"]["label"] for each in questions), path


def test_the_extras_for_users_are_documented() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    documented = re.findall(r"(?m)^\| `([a-z]+)` \| ", page.partition("## Extras")[2])
    internal = {"java", "compiler", "embedded", "test", "docs"}  # for the launcher and the project
    assert set(documented) == PROJECT["optional-dependencies"].keys() - internal


def test_hooks_use_the_programs_of_the_environment() -> None:
    entries = [shlex.split(hook["entry"]) for repo in HOOKS for hook in repo["hooks"]]
    assert {words[0] for words in entries} == {".venv/bin/ruff", ".venv/bin/mypy"}
    for words in entries:
        assert (Path(sys.executable).parent / Path(words[0]).name).exists(), words


def test_the_readme_can_be_read_without_the_repository() -> None:
    """Package indexes show it: no link and no image is relative, and pages are named as code."""
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href)=[\"']([^\"']*)", text)
    assert [each for each in targets if not "".join(each).startswith(("https://", "#"))] == []


# --- the changelog --------------------------------------------------------------------------------


def complaints(text: str, version: str) -> list[str]:
    """Return what is not as Keep a Changelog has it, and releases that are out of order."""
    found: list[str] = []
    releases = [each for each in text.splitlines() if each.startswith("## ")]
    if releases[:1] != ["## [Unreleased]"]:
        found.append("the first heading is not [Unreleased]")
    found += [each for each in releases[1:] if not release.RELEASED.fullmatch(each)]
    numbers = [tuple(map(int, each.split("."))) for each in release.RELEASED.findall(text)]
    if numbers != sorted(set(numbers), reverse=True):
        found.append("the newest release is not the first")
    if numbers and numbers[0] > tuple(map(int, version.split("."))):
        found.append(f"pyproject.toml has {version}, which is older than the newest release")
    for section in re.split(r"(?m)^## ", text)[1:]:
        head, *parts = re.split(r"(?m)^### ", section)
        kinds = [part.splitlines()[0] for part in parts]
        found += [f"unknown kind: {kind}" for kind in kinds if kind not in KINDS]
        if kinds != sorted(set(kinds), key=kinds.index):
            found.append("a kind is twice in one release")
        if re.search(r"(?m)^- ", head):
            found.append("an entry has no kind")
    return found


def test_the_changelog_is_kept_as_one() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert complaints(text, release.version()) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("## 0.1.0 (unreleased)\n\n### Added\n", "not [Unreleased]"),
        ("## [Unreleased]\n\n- an entry\n", "no kind"),
        ("## [Unreleased]\n\n### Improved\n", "unknown kind"),
        ("## [Unreleased]\n\n### Fixed\n\n### Fixed\n", "twice"),
        ("## [Unreleased]\n\n## [0.1.0]\n", "## [0.1.0]"),
        ("## [Unreleased]\n\n## [0.0.1] - 2026-01-01\n\n## [0.1.0] - 2026-02-01\n", "newest"),
        ("## [Unreleased]\n\n## [0.2.0] - 2026-01-01\n", "older than the newest"),
    ],
)
def test_what_is_not_kept_as_one_is_found(text: str, reason: str) -> None:
    assert any(reason in each for each in complaints(text, "0.1.0"))


def test_a_release_needs_its_tag_and_its_entry() -> None:
    assert eos.__version__ == release.version()
    done = "## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n"
    assert release.mismatch("v0.1.0", "0.1.0", done) == ""
    assert "the tag is v0.2.0" in release.mismatch("v0.2.0", "0.1.0", done)
    assert "is none, not 0.1.0" in release.mismatch("v0.1.0", "0.1.0", "## [Unreleased]\n")
    assert "is 0.1.0, not 0.2.0" in release.mismatch("v0.2.0", "0.2.0", done)


@pytest.mark.parametrize("which", ["long", "nightly"])
def test_each_marked_test_is_in_a_folder_of_its_run(which: str) -> None:
    chosen = (ROOT / "tests/run").read_text(encoding="utf-8").partition(f"\n  {which})")[2]
    folders = set(re.findall(r"tests/\w+", chosen.partition(";;")[0]))
    marked = {
        f"tests/{path.parent.name}"
        for path in (ROOT / "tests").glob("*/test_*.py")
        if f"mark.{which}" in path.read_text(encoding="utf-8") and path.name != Path(__file__).name
    }
    assert marked <= folders
