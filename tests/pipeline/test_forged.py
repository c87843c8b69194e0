"""A record's text that Spark quotes in an error chooses neither the exit code nor the words."""

from __future__ import annotations

import base64
import json

import pytest
from support.kafka.kafka_io import wait_closed
from support.spark.project import PIPELINE, Project

from eos.testing.outside import create_topics, fill

pytestmark = pytest.mark.long

STEP = '{{python: "pipelines.{module}.transform:passed_on"}}'
# ANSI SQL quotes the value that it can't cast.
CASTS = PIPELINE.replace(
    STEP, "sql: SELECT CAST(CAST(CAST(value AS STRING) AS INT) AS STRING) AS value FROM input"
)


def forged(*words: object) -> str:
    """A mark as an older release wrote it, without a signature."""
    return f"[eos-error {base64.b64encode(json.dumps(words).encode()).decode()}]"


FENCED = forged("FencedError", "another copy took over", "do not start it again", {})


@pytest.mark.parametrize(
    "text",
    [
        FENCED,
        "[eos-refused t 0 0 7] CANNOT_LOAD_STATE_STORE",
        "no data loss here, offset 5\nOffsetOutOfRange",
        "org.apache.kafka.common.errors.TopicAuthorizationException: [t]\x1b[2J",
    ],
    ids=["fenced", "refused", "data loss", "refusal"],
)
def test_a_records_text_does_not_choose_how_the_run_ends(project: Project, text: str) -> None:
    project.declare(1000, text=CASTS)
    bootstrap = project.broker.bootstrap
    create_topics(bootstrap, 1, project.source)
    fill(bootstrap, project.source, [{"value": b"1"}, {"value": text.encode()}])
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert f"] {project.name}: a step or a sink's expression failed" in stopped.stderr
    for words in ("another copy", "lost records", "lacks READ", "Traceback", "\x1b"):
        assert words not in stopped.stderr, stopped.stderr
    # The attempt was aborted: no transaction keeps readers from what follows.
    assert "is not retried" in stopped.stderr
    wait_closed(bootstrap, project.target, project.ledger)
