"""Pipelines in Markdown are linted where they stand; parts of one, and others' YAML, are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.cli.lint import find, lint
from eos.errors import UsageError

ROOT = Path(__file__).parents[2]
DOCUMENT = """\
# Notes

```yaml
source: {on_error: drp}
sink: {}
```

```yaml
version: "3"
services: {}
```

```python
version: int
source: str
```

```yaml
version: 1
name: fine
source: {kafka: {topic: a}}
sink: {kafka: {topic: b}}
```

```yml
version: 1
name: misspelt
sorce: {kafka: {topic: a}}
sink: {kafka: {topic: b}}
```

```yaml title="steps"
version: 1
name: steps
source: {kafka: {topic: a}}
transform: [{sql: "SELECT *, rand() FROM input"}, {python: nowhere_at_all:f}]
sink: {kafka: {topic: b}}
```
"""


def test_whole_pipelines_are_linted_in_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "NOTES.md"
    path.write_text(DOCUMENT)
    lines = DOCUMENT.splitlines()
    (missing, misspelt, unstable, nowhere) = find(path)
    assert [each.path for each in (missing, nowhere)] == [str(path), str(path)]
    assert lines[missing.line] == "name: misspelt"
    assert lines[misspelt.line - 1].startswith("sorce")
    assert "did you mean `source`?" in misspelt.message
    assert lines[nowhere.line - 1][nowhere.column - 1 :].startswith("nowhere_at_all:f")
    assert (unstable.line, unstable.severity) == (nowhere.line, "warning")
    assert lint([path], as_json=False) == 1
    path.write_text(DOCUMENT[: DOCUMENT.index("```yml")])
    capsys.readouterr()
    assert lint([path], as_json=False) == 0
    assert capsys.readouterr().err.startswith("1 pipeline without problems; `eos test` checks")


def test_a_document_that_is_not_there_is_an_error_of_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the document .*none\.md can't be read: No such file"):
        list(find(tmp_path / "none.md"))


def test_the_readme_lints_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint([ROOT / "README.md"], as_json=False) == 0
    assert capsys.readouterr().err.startswith("1 pipeline without problems; `eos test` checks")
