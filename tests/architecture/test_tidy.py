"""What no linter knows: the size of files, their letters, and words that don't belong here."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import selection

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
PROTOCOL_LINES_MAX = 250

# A pattern, and why it is not to be found. Written in pieces, so that this file does not match.
BANNED = {
    r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bX" + r"XX\b": "unfinished work belongs in an issue",
    r"pytest\.mark\.(skip|xfail)|pytest\.(skip|xfail)\(": "a test that does not run proves nothing",
    r"\bmock\.|import mock\b|MagicMock": "real things run here; doubles are in tests/support",
    r"(?i)://[\w.-]*(maven|pypi|npm|crates|mirror|registry|proxy)[\w.-]*\.[a-z]": (
        "registries are found by their clients: no address of one is written down"
    ),
    r"/ro" + r"ot/|/home/\w|/Users/\w|/wo" + r"rk/": "a path of one machine is wrong on all others",
}
# Where one of them has its reason.
EXCEPT = {
    "tests/support/kafka/brokers.py": "a cluster elsewhere has no logs on this disk; only if asked",
    "tests/fuzz/test_native_sanitized.py": "on a machine without a C compiler or sanitizers",
    "tests/pipeline/test_native_wheel.py": "on a machine without a C compiler",
    "tests/pipeline/test_rollback.py": "in a shallow clone, or without git",
    "tests/pure/test_native_library.py": "on a machine without a C compiler",
    "tests/support/machines/stores.py": "on a machine without Go, which builds an S3 server",
}
# Longer than a screen, and why.
LONG = {("eos/transaction/protocol.py", "_table"): "transitions as data, one row a line"}
# Files whose text is not ours.
FOREIGN = {"LICENSE", "tests/fixtures/state-2a3beea.tar.xz"}


def files() -> Iterator[Path]:
    """What git knows or would take: nothing ignored, nothing generated."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and name not in FOREIGN:
            yield path


def told(paths: Iterator[str]) -> None:
    found = list(paths)
    assert not found, "\n" + "\n".join(found)


def test_every_file_is_plain_ascii() -> None:
    told(
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if not line.isascii()
    )


def test_no_source_file_is_longer_than_one_question() -> None:
    told(
        f"{path.relative_to(ROOT)}: {lines} lines, at most {limit}"
        for path in files()
        if path.suffix in {".py", ".sh"}
        for limit in [PROTOCOL_LINES_MAX if path.name == "protocol.py" else FILE_LINES_MAX]
        for lines in [len(path.read_text(encoding="utf-8").splitlines())]
        if lines > limit
    )


def test_no_function_is_longer_than_a_screen() -> None:
    told(
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines"
        for path in files()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "eos")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (path.relative_to(ROOT).as_posix(), node.name) not in LONG
        for lines in [(node.end_lineno or node.lineno) - node.lineno + 1]
        if lines > FUNCTION_LINES_MAX
    )


def test_the_modules_that_tests_share_are_listed() -> None:
    """In the docstring of their package, each with what it offers."""
    place = ROOT / "tests" / "support"
    shared = [path for path in files() if path.is_relative_to(place)]
    packages = {path.parent for path in shared} - {place / "simulated_broker"}
    assert place in packages
    for package in packages:
        names = {path.stem for path in shared if path.parent == package} - {"__init__"}
        names |= {f"{path.parent.name}/" for path in shared if path.parent.parent == package}
        about = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        listed = re.findall(r"(?m)^ *(\w+/?) {2,}", about)
        assert sorted(listed) == sorted(names), package


def test_each_test_that_the_quick_run_leaves_out_exists() -> None:
    """If this fails: rename it in tests/slow.txt, or write that list anew (support/selection)."""
    names = selection.slow_names()
    assert names
    for name in names:
        path, *inside = name.split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        if inside[-1] != "runTest":  # of a state machine: hypothesis makes it
            assert f"def {inside[-1]}(" in text, name


def test_what_a_checkout_offers_as_a_job_an_installation_has_too() -> None:
    jobs = sorted((ROOT / "jobs").iterdir())
    assert [job.name for job in jobs] == ["maintain.py", "run.py"]
    assert [job.resolve() for job in jobs] == [ROOT / "eos" / "job" / job.name for job in jobs]


@pytest.mark.parametrize("pattern", BANNED)
def test_banned_words_are_not_there(pattern: str) -> None:
    told(
        f"{path.relative_to(ROOT)}:{number}: {BANNED[pattern]}: {line.strip()}"
        for path in files()
        if path != Path(__file__)
        if path.relative_to(ROOT).as_posix() not in EXCEPT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    )
