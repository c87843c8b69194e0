"""A secret never prints: a pipeline file that would show one is refused by whoever reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.verbs import plan as plan_verb

from eos.cli import test
from eos.cli.lint import lint
from eos.errors import UsageError
from eos.run.pipeline import run
from eos.run.prepared import RunOptions

SECRET = "Hunter2-planted"
# Each line but the first and the last shows something of its own.
PIPELINE = """\
version: 1
name: orders
source: {kafka: {topic: "REFERENCE"}}
transform:
  - {sql: "SELECT *, 'REFERENCE' AS a FROM input"}
  - {python: "hidden_steps:f", with: {rate: "REFERENCE"}}
sink:
  kafka:
    topic: "REFERENCE.out"
    headers: {h: "'REFERENCE'"}
    where: "key = 'REFERENCE'"
  delta: {path: "lake/REFERENCE"}
tests: [{name: a, input: [{value: "REFERENCE"}], output: []}]
"""
LINES = [n for n, line in enumerate(PIPELINE.splitlines(), 1) if "REFERENCE" in line]
PROFILE = """\
kafka:
  bootstrap: a:1
  security: {protocol: SASL_SSL, mechanism: PLAIN, user: eos, password: "${KPW}"}
state: {root: state}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pipelines" / "orders"
    folder.mkdir(parents=True)
    (folder / "hidden_steps.py").write_text("def f(rows, rate): return rows\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    for name in ("KPW", "SHOP_TOKEN", "SEEN"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(test, "local_session")  # no Spark is started to find a secret
    monkeypatch.setattr(sys, "path", [*sys.path])  # a project's folders stay on it
    return tmp_path


def write(project: Path, reference: str) -> Path:
    (project / "conf" / "local.yaml").write_text(PROFILE)
    path = project / "pipelines" / "orders" / "pipeline.yaml"
    path.write_text(PIPELINE.replace("REFERENCE", reference))
    return path


@pytest.mark.parametrize("reference", ["${file:SECRET}", "${SHOP_TOKEN}", "${KPW}"])
def test_no_verb_shows_a_secret(
    project: Path, reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(project, reference.replace("SECRET", str(project / "secret")))
    plans = ([str(path), *more] for more in ([], ["--mermaid"], ["--json"]))
    verbs = [lambda words=words: plan_verb(words) for words in plans]
    # Before there is a Spark, a ledger to write to, an audit table, or a log.
    verbs.append(lambda: run(path, RunOptions(None, "a:1")))
    assert test.run_cases([path], None, as_json=True) == 1
    said = []
    for verb in verbs:
        with pytest.raises(UsageError) as refused:
            verb()
        problems = refused.value.fields["problems"]
        assert [problem.line for problem in problems] == LINES
        assert all("is printed in plans, logs, errors" in problem.message for problem in problems)
        said.append(repr(refused.value) + str(refused.value.fields))
    # Which profile it will be is not known to who looks at the file alone.
    assert lint([path], as_json=True) == (0 if reference == "${KPW}" else 1)
    captured = capsys.readouterr()
    assert SECRET not in "".join([*said, captured.out, captured.err])


def test_what_is_no_secret_shows(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_verb([str(write(project, "${SEEN}${TOKEN_TOPIC:-x}"))]) == 0
    assert f"kafka: {SECRET}x.out" in capsys.readouterr().out
