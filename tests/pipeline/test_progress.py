"""The progress line of a whole run on a terminal: launcher, spark-submit and driver."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing

import pytest
from support.kafka import kafka_io
from support.screen import Screen
from support.spark.project import RUN_S_MAX, Project

pytestmark = [pytest.mark.spark, pytest.mark.long]
RECORDS = 1_000


@pytest.mark.nightly
def test_a_backfill_has_a_bar_and_leaves_a_clean_terminal(project: Project) -> None:
    bootstrap, screen = project.broker.bootstrap, Screen(300)
    kafka_io.create_topics(bootstrap, 1, project.source)
    kafka_io.fill(bootstrap, project.source, range(RECORDS))
    project.declare(RECORDS // 50)
    environment = {**project.environment(), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with closing(screen):
        done = subprocess.run(
            [sys.executable, "-m", "eos.cli.run", *project.words(), "--available-now"],
            env=environment,
            cwd=project.folder,
            stderr=screen.stream,
            timeout=RUN_S_MAX,
            check=False,
        )
    assert done.returncode == 0, screen.shown()
    shares = [int(each) for each in re.findall(r"offsets left \S+ (\d+) %", plain(screen.written))]
    assert len(set(shares)) > 2, screen.written
    assert shares == sorted(shares), "the bar only grows"
    assert re.search(r"offsets left \S+ \d+ %, \d+ s left", plain(screen.written))
    shown = [row for row in screen.shown() if row]
    assert [row for row in shown if not row.startswith("eos: ")] == []
    assert [row for row in shown if "records/s" in row] == [], "the line was cleared"
    assert any("eos: 50 micro-batches committed: 1,000 records in" in row for row in shown), shown
    assert screen.problems == []


def plain(written: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", written)
