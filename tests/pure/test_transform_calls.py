"""What a redone micro-batch would not repeat, found in the text of functions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eos.cli.lint import find
from eos.transform.nondeterministic_calls import unstable

IMPORTS = """
import datetime
import datetime as dt
import os, random, secrets, time, uuid
import numpy as np
import pandas as pd
import pyspark.sql.functions
from datetime import date
from pyspark.sql import functions as f
from pyspark.sql.functions import expr, rand as dice
from random import Random, shuffle
from uuid import uuid4
"""


def told(tmp_path: Path, text: str, function: str = "step") -> list[str]:
    module = tmp_path / "transform.py"
    module.write_text(text)
    return [f"{each.function}:{each.line}" for each in unstable(module, function)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("f.rand()", "rand"),
        ("dice(7)", "rand"),
        ("pyspark.sql.functions.uuid()", "uuid"),
        ("f.current_timestamp()", "current_timestamp"),
        ("f.now()", "now"),
        ("frame.agg(f.first('a'))", "first"),
        ("f.unix_timestamp()", "unix_timestamp"),
        ("f.monotonically_increasing_id()", "monotonically_increasing_id"),
        ("expr('uuid()')", "uuid"),
        ("frame.selectExpr('a', 'rand() AS b')", "rand"),
        ("frame.sparkSession.sql('SELECT now() FROM {rows}', rows=frame)", "now"),
        ("uuid.uuid4()", "uuid.uuid4"),
        ("[uuid4() for _ in frame]", "uuid.uuid4"),
        ("frame.map(lambda _: random.random())", "random.random"),
        ("shuffle(frame)", "random.shuffle"),
        ("Random()", "random.Random"),
        ("np.random.default_rng().normal()", "numpy.random.default_rng"),
        ("np.random.rand(3)", "numpy.random.rand"),
        ("secrets.token_hex(8)", "secrets.token_hex"),
        ("os.urandom(8)", "os.urandom"),
        ("time.time()", "time.time"),
        ("time.gmtime()", "time.gmtime"),
        ("dt.datetime.now(dt.timezone.utc)", "datetime.datetime.now"),
        ("datetime.datetime.utcnow()", "datetime.datetime.utcnow"),
        ("date.today()", "datetime.date.today"),
        ("pd.Timestamp.now()", "pandas.Timestamp.now"),
        ("dict(default_factory=uuid4)", "uuid.uuid4"),
    ],
)
def test_what_gives_another_value_is_found_with_its_line(
    body: str, found: str, tmp_path: Path
) -> None:
    text = f"{IMPORTS}\ndef step(frame):\n    # a comment\n    return {body}\n"
    assert told(tmp_path, text) == [f"{found}:{IMPORTS.count(chr(10)) + 4}"]


@pytest.mark.parametrize(
    "body",
    [
        "f.col('now')",
        "frame.now()",
        "frame.random.uuid4()",
        "f.unix_timestamp('ts')",
        "expr(\"concat('rand()', a)\")",
        "uuid.uuid5(uuid.NAMESPACE_URL, 'a')",
        "Random(7).random()",
        "np.random.default_rng(7).normal()",
        "time.gmtime(0)",
        "dt.datetime.fromtimestamp(0)",
        "pd.Timestamp('2026-01-01')",
        "[time.time() for time in frame]",
        "(lambda uuid: uuid.uuid4())(frame)",
        "rand()",
        "'uuid4()'",
    ],
)
def test_what_has_its_name_only_is_not(body: str, tmp_path: Path) -> None:
    assert told(tmp_path, f"{IMPORTS}\ndef step(frame, random=None):\n    return {body}\n") == []


def test_names_of_the_users_own_are_theirs(tmp_path: Path) -> None:
    text = "from .random import random\nfrom uuid import *\n\ndef now():\n    return 1\n\n"
    assert told(tmp_path, f"{text}def step(frame):\n    return random(), now(), first()\n") == []


def test_a_star_of_sparks_functions_has_them(tmp_path: Path) -> None:
    text = "from pyspark.sql.functions import *\n\ndef first():\n    return 1\n\n"
    found = told(tmp_path, f"{text}def step(frame):\n    return rand(), first()\n")
    assert found == ["rand:7"]


HELPED = """
try:
    import uuid
except ImportError:
    raise
if True:
    import time

BEGUN = time.time()

def named():
    return uuid.uuid4()

class Clock:
    def now(self, uuid):
        return time.time(), uuid.uuid4()

def step(frame):
    import random as dice
    return named(), Clock(), BEGUN, dice.random()

def sample():
    return uuid.uuid1()
"""


def test_it_is_followed_to_what_it_names_in_its_module_and_no_further(tmp_path: Path) -> None:
    found = told(tmp_path, HELPED)
    assert found == ["time.time:9", "uuid.uuid4:12", "time.time:16", "random.random:20"]
    assert told(tmp_path, HELPED, "sample") == ["uuid.uuid1:23"]
    assert told(tmp_path, HELPED, "none_such") == []
    assert told(tmp_path, "def step(:\n") == []


PIPELINE = """
version: 1
name: clocked
source: {kafka: {topic: orders}}
transform:
  - pandas: steps_of_clocked:stamped
    returns: "value BINARY, at DOUBLE"
  - python: pipelines.clocked.steps_of_clocked:passed
sink: {kafka: {topic: out, value: value}}
"""
STAMPED = """
import time
import pandas as pd

def stamped(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(at=time.time())

def passed(frame):
    return frame
"""


def test_lint_warns_with_the_functions_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pipelines" / "clocked"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "steps_of_clocked.py").write_text(STAMPED)
    monkeypatch.setattr("sys.path", [*sys.path])
    (found,) = find(folder / "pipeline.yaml")
    assert str(found) == (
        f"{folder}/steps_of_clocked.py:6:28: warning: `time.time` returns the time of the attempt, "
        "so a retry of the micro-batch returns another value"
    )
