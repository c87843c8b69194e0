"""A file that is no YAML, or a value that is wrong, is told in a sentence with a place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eos.cli.pipeline_argument import find_pipeline
from eos.config.load import load_parts, load_pipeline, load_profile
from eos.errors import UsageError
from eos.plural import plural

WHOLE = """\
version: 1
name: orders
source: {kafka: {topic: in}}
sink: {kafka: {topic: 'out', key: "id", value: {json: [id]}}}
"""
TWO = "version: 1\nname: a\n"
OPEN = {
    'sink:\n  kafka: {topic: out, key: "id, value: json}\n': (
        4,
        28,
        'this `"` is never closed by `"`',
    ),
    "sink:\n  kafka: {topic: 'out, key: id}\n\n": (4, 18, "this `'` is never closed by `'`"),
    "sink: {kafka: {topic: out}\n": (3, 7, "this `{` is never closed by `}`"),
    "sink: {kafka: [1, 2\n": (3, 15, "this `[` is never closed by `]`"),
    # What is the end of a line differs between YAML and Python.
    "sink: [a,\x85b, '\n": (4, 4, "this `'` is never closed by `'`"),
    "sink: [\x1c\n": (3, 8, r"the character U+001C is not allowed; write it as `\u001C`"),
    "sink: [1, 2}\n": (3, 12, "the `[` in line 3, column 7 is still open here: a comma"),
    "sink:\n\tkafka: out\n": (4, 1, "got a tab; YAML indents by spaces"),
    "sink: @out\n": (3, 7, "a text that begins with @ needs quotes around it"),
}


@pytest.mark.parametrize("text", OPEN)
def test_it_is_told_where_it_begins(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(TWO + text, encoding="utf-8")
    (found,), _ = load_parts(path)
    line, column, words = OPEN[text]
    assert (found.line, found.column) == (line, column)
    assert found.message.startswith("expected YAML: ")
    assert words in found.message


def test_a_file_that_was_cut_off_anywhere_is_a_problem_within_it() -> None:
    assert load_pipeline(Path("pipeline.yaml"), {}, text=WHOLE).name == "orders"
    for end in range(len(WHOLE) - 2):
        text = WHOLE[:end] + "\n"
        found, _ = load_parts(Path("pipeline.yaml"), {}, text=text)
        assert found, text
        assert all(each.line <= 1 + text.count("\n") for each in found), text


def test_a_profile_that_is_no_yaml_is_told_as_well(tmp_path: Path) -> None:
    path = tmp_path / "prod.yaml"
    path.write_text("kafka: {bootstrap: 'a:1}\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"prod\.yaml:1:20: expected YAML: this `'` is never closed by `'`"
    ):
        load_profile(str(path), tmp_path, {})


def test_a_broken_file_is_in_nobody_elses_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in (("aa", TWO + "sink: {\n"), ("orders", WHOLE)):
        (tmp_path / "pipelines" / folder).mkdir(parents=True)
        (tmp_path / "pipelines" / folder / "pipeline.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines" / "orders").rename(tmp_path / "pipelines" / "zz")
    assert find_pipeline("orders").folder.name == "zz"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sink:", 'transform: [{sql: "SELEC * FROM input"}]\nsink:'),
        ("{kafka: {topic: in}}", "{kafka: {topic: in}, value: {json: id DUBLE}}"),
        ("sink:", "trigger: {once: 'yes'}\nsink:"),
    ],
)
def test_what_was_got_is_told_once(old: str, new: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_pipeline(Path("pipeline.yaml"), {}, text=WHOLE.replace(old, new))
    (found,) = caught.value.fields["problems"]
    assert len(re.findall(r"\bgot\b", found.message)) == 1


def test_one_is_no_plural() -> None:
    assert [plural(count, "rule") for count in (0, 1, 2, 1234)] == [
        "0 rules",
        "1 rule",
        "2 rules",
        "1,234 rules",
    ]
