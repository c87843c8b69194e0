"""The warm driver: a run in it is like one of its own process, also after one that failed."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from support.kafka import kafka_io
from support.spark.project import KILLED, Project

NAMED = """
from helper import word

def passed_on(frame):
    return frame.selectExpr("key", "concat('%s:', '{word}', CAST(value AS STRING)) AS value" % word)
"""
FAILING = """
import os
os.environ["LEFT_BY_ANOTHER_RUN"] = "1"

def passed_on(frame):
    raise ValueError("as written")
"""
OWN = "import os\nword = os.environ.get('WORD', '') + os.environ.get('LEFT_BY_ANOTHER_RUN', '')\n"
RECORDS = 200


@pytest.mark.nightly
def test_runs_share_nothing_but_the_driver_and_survive_its_death(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS)
    kafka_io.create_topics(bootstrap, 2, project.source)
    folder = project.folder / "pipelines" / project.name
    expected: Counter[bytes] = Counter()
    (folder / "transform.py").write_text(FAILING)
    failed = project.run_warm()
    assert failed.returncode == 4, failed.stderr
    assert "ValueError: as written" in failed.stderr

    (folder / "helper.py").write_text(OWN)
    for word in "ab":
        (folder / "transform.py").write_text(NAMED.format(word=word))
        # The same size, the same second: what was compiled would pass for the new one.
        os.utime(folder / "transform.py", (0, 0))
        first = sum(expected.values())
        kafka_io.fill(bootstrap, project.source, range(first, first + RECORDS))
        done = project.run_warm(WORD=word)
        assert done.returncode == 0, done.stderr
        assert "as written" not in done.stderr
        expected += Counter(f"{word}:{word}{n}".encode() for n in range(first, first + RECORDS))
        found = kafka_io.read(bootstrap, project.target)
        assert Counter(row.value for row in found) == expected

    first = sum(expected.values())
    kafka_io.fill(bootstrap, project.source, range(first, first + RECORDS))
    died = project.run_warm(EOS_CRASH_AT="offsets:after:both")
    assert died.returncode == KILLED, died.stderr
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    expected += Counter(f":b{n}".encode() for n in range(first, first + RECORDS))
    found = kafka_io.read(bootstrap, project.target)
    assert Counter(row.value for row in found) == expected
