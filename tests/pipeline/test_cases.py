"""`eos test` as a user runs it: tests that pass, tests that fail, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.verbs import init

from eos.config.load import load_pipeline

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.long]
TEXT = """
version: 1
name: words
source: {kafka: {topic: words}, key: string, value: {json: "id INT, word STRING"}}
transform:
  - sql: SELECT *, upper(word) AS loud, uuid() AS other FROM input WHERE id > 0
sink:
  kafka:
    - {topic: all, value: {json: [id, loud]}, headers: {key: key}}
    - {topic: b, where: loud LIKE 'B%'}
tests:
  - name: right
    input: [{key: k, value: {id: 1, word: a}}, {value: {id: 2, word: b}}, {value: {id: 0}}]
    output:
      - {topic: b, value: {id: 2, word: b}}
      - {topic: all, value: {loud: B}, headers: {key: null}}
      - {topic: all, value: {id: 1, loud: A}, headers: {key: k}, exact: true}
  - name: wrong
    input: [{value: {id: 1, word: a}}, {value: {id: 3, word: c}}]
    output: [{value: {loud: A}}, {value: {id: 3, loud: X}}, {value: {id: 4}}]
  - name: malformed
    input: [{value: {id: x}, offset: 17}]
    output: []
"""

# Where it is wrong only Spark knows; and it has the other one's name.
MISSPELT = TEXT.replace("upper(word)", "upper(wrd)")

WRONG = """\
ok    words (PATH): right
FAIL  words (PATH): wrong
      1 as expected
    - {"value": {"id": 3, "loud": "X"}}
    - {"value": {"id": 4}}
    + {"value": {"id": 3, "loud": "C"}}
FAIL  words (PATH): malformed
"""


@pytest.mark.nightly
def test_what_passes_and_what_fails_is_told_with_the_difference(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    path = tmp_path / "pipelines" / "pipeline.yaml"
    path.write_text(TEXT)
    misspelt, broken = tmp_path / "misspelt.yaml", tmp_path / "broken.yaml"
    misspelt.write_text(MISSPELT)
    broken.write_text(TEXT.replace("topic: all,", "topc: all,"))
    assert init([str(tmp_path / "shop")]) == 0
    # All that have tests. One Spark for all of them, and for what `eos init` writes.
    ours = [
        path.parent
        for path in sorted((ROOT / "pipelines").glob("*/pipeline.yaml"))
        if load_pipeline(path).tests
    ]
    assert ours, "no example has tests"
    examples = [*ours, tmp_path / "shop" / "pipelines" / "shop"]
    done = subprocess.run(
        [sys.executable, "-m", "eos", "test", *map(str, [misspelt, broken, path, *examples])],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done.stderr
    told = done.stdout
    assert told.startswith(f"FAIL  words ({misspelt})\n")
    assert told.index("`wrd`") < told.index(f"FAIL  {broken}\n") < told.index("`topc`")
    assert WRONG.replace("PATH", str(path)) in told
    assert "[record_malformed] words: the record words-0 at offset 17" in done.stdout
    assert "set `on_error`" in done.stdout
    for example in examples:
        assert done.stdout.count(f"ok    {example.name}: ") == len(load_pipeline(example).tests) > 0
    assert done.stdout.count("FAIL") == 4
    # The JVM's own words are in a file.
    assert "log level" not in done.stderr
    assert "incubator" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "QueryContextLogger" not in done.stderr
    assert (
        "warning: words uses uuid: the result changes when a micro-batch is retried" in done.stderr
    )
