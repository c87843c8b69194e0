"""`eos audit`: the table beside a real cluster, and the verb with its words and exit codes."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from support.copies.audit import catch_up, projection, projection_of
from support.copies.pipeline_copy import Copy
from support.copies.recovery import Pipeline
from support.errors import raises
from support.kafka.brokers import wait_ended
from support.verbs import audit
from support.waiting import wait_until

from eos.audit.reader import read_transactions
from eos.audit.rows import table
from eos.audit.table import TransactionsTable
from eos.cli.audit import maintain
from eos.errors import UsageError
from eos.inspect.audit_live import live
from eos.inspect.cluster_view import ClusterView
from eos.kafka.api import TopicPartition


@pytest.mark.long
def test_what_the_cluster_says_of_a_pipeline_that_ran(scenes, client, tmp_path):
    scene = scenes.new(60)
    job = scene.job
    with Copy(job) as copy:
        copy.start()
        copy.drain()
    kept = TransactionsTable(tmp_path / "t")
    catch_up(projection(scene, client, tmp_path / "t"))
    wait_ended(client, job.name)
    found = read_transactions(kept, job.name, job.ledger)
    assert [each.batch_id for each in found if each.is_attempt] == [0, 1, 2]

    def seen():
        return live(ClusterView(client, job.name, job.name, job.ledger), found)

    before = seen()
    assert before.phase == "CompleteCommit"
    assert not before.findings
    assert not before.open
    names = [field.name for field in before.fields]
    assert {f"group offset of {job.source}-0", "last record of the ledger"} <= set(names)
    assert all(field.is_same and field.broker is not None for field in before.fields)

    stranger = Producer(
        {"bootstrap.servers": job.bootstrap, "transactional.id": f"{job.name}-x", "log_level": 2}
    )
    stranger.init_transactions(300)
    stranger.begin_transaction()
    stranger.produce(job.target, b"mine", partition=1)
    assert stranger.flush(300) == 0
    (opened,) = seen().open
    assert (opened.partition, opened.owner) == (TopicPartition(job.target, 1), f"{job.name}-x")
    assert [finding.case for finding in seen().findings] == ["foreign"]
    stranger.abort_transaction(300)

    with Copy(job) as copy:  # newer than the table is no finding
        copy.start()
        assert not seen().findings
        catch_up(projection(scene, client, tmp_path / "t"))
        found = read_transactions(kept, job.name, job.ledger)
    admin = AdminClient({"bootstrap.servers": job.bootstrap, "log_level": 2})
    moved = ConsumerGroupTopicPartitions(job.name, [Position(job.source, 0, 7)])
    (done,) = admin.alter_consumer_group_offsets([moved]).values()
    done.result(300)
    differing = wait_until(lambda: seen().findings)
    assert [each.message for each in differing] == [
        f"group offset of {job.source}-0: 30 in the table, 7 in the cluster"
    ]


def said(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out):
        code = audit(words)
    return code, out.getvalue()


def test_the_verb(pipeline: Pipeline):
    words = pipeline.words
    code, out = said(*words)
    assert code == 0
    assert "it never ran with a table" in out
    pipeline.ran(3, 4)
    names = pipeline.planned().names
    made = projection_of(pipeline)
    location = made.table.location.local
    assert location == pipeline.folder / "state" / "audit" / "transactions"
    catch_up(made)

    code, out = said(*words)
    assert code == 0, out
    assert out.splitlines()[0] == f"pipeline    {names.pipeline}, ledger {names.ledger}"
    assert "micro-batch 1  CompleteCommit" in out
    assert "2 committed, 0 aborted: 0.000 retries per commit" in out
    assert out.splitlines()[-1] == "no findings"

    code, out = said(*words, "--json", "--live")
    told = json.loads(out)
    assert (code, told["findings"], told["committed"]) == (0, [], 2)
    assert told["live"]["coordinator"] == "CompleteCommit"
    assert [each["kind"] for each in told["transactions"]] == [
        "stop",
        "attempt",
        "attempt",
        "start",
    ]

    assert json.loads(said(*words, "--json", "--since", "1 hour")[1])["committed"] == 2
    after = "2999-01-01T00:00:00Z"
    assert json.loads(said(*words, "--json", "--since", after)[1])["committed"] == 0
    with raises("since_invalid", UsageError):
        said(*words, "--since", "yesterday")

    last = read_transactions(TransactionsTable(location), names.pipeline, names.ledger)[-1]
    app = f"{names.pipeline}/{last.ledger_id}"
    made.table.known(app)
    rows = made.table.query("SELECT * FROM transactions WHERE batch_id = 1 AND kind = 'attempt'")
    made.table.append(table(dict(row) for row in rows), app, last.ledger_offset + 1)
    code, out = said(*words)
    assert code == 1
    assert "twice: " in out


def test_maintenance_by_hand(pipeline: Pipeline, capsys, monkeypatch):
    monkeypatch.chdir(pipeline.folder)
    assert maintain(["--profile", pipeline.words[2]]) == 0
    assert "0 pipelines" in capsys.readouterr().out
    pipeline.ran(3)
    names = pipeline.planned().names
    made = projection_of(pipeline)
    catch_up(made)
    assert maintain(["--profile", pipeline.words[2]]) == 0
    assert "1 pipelines, 0 files deleted" in capsys.readouterr().out
    assert made.table.file_count(names.pipeline) == 1
