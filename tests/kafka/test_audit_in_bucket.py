"""The audit table in a bucket of a real S3 server: exactly once, whoever dies or competes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from support import verbs
from support.copies import audit
from support.copies.audit import (
    CopyingPipeline,
    catch_up,
    check_table,
    projection,
    ran,
    spawn_projection,
)
from support.copies.recovery import run_verb
from support.machines.stores import BUCKET, S3, versity

from eos.audit.projection import Projection
from eos.audit.rows import SCHEMA
from eos.audit.table import OvertakenError, TransactionsTable
from eos.cli.audit import maintain
from eos.folder import Folder, folder_of

pytestmark = pytest.mark.long  # the server is built once, which takes minutes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


@pytest.fixture
def location(store: S3, name: str) -> Folder:
    return in_bucket(store, name)


def in_bucket(store: S3, name: str) -> Folder:
    found = folder_of(f"s3a://{BUCKET}/{name}/audit/transactions", store.settings())
    assert found is not None
    return found


def test_the_table_in_a_bucket_has_each_record_of_the_ledger_once(scenes, client, location):
    scene = ran(scenes)
    first = catch_up(projection(scene, client, location))
    assert first.rows == len(audit.table_rows(location, scene.job.name)) > 4
    assert not check_table(scene, location)
    assert catch_up(projection(scene, client, location)).rows == 0
    audit.check_producers(client, location, scene.job.name, scene.job.ledger, scene.job.name)

    # Maintenance deletes neither rows nor files in use, and a deleted table is filled again.
    table = TransactionsTable(location)
    table.compact(scene.job.name)
    table.clean()
    assert not check_table(scene, location)
    location.remove_folder("")
    catch_up(projection(scene, client, location))
    assert not check_table(scene, location)


def test_two_copies_that_append_at_the_same_time_and_are_killed_leave_each_row_once(
    scenes, client, location, store
):
    scene = ran(scenes, 160)
    for lines in (1, 2, 4):
        both = [spawn_projection(scene, location, conf=store.settings()) for _ in range(2)]
        for _ in range(lines):
            if not both[0].stdout.readline():  # the other one wrote all that was left
                assert both[0].wait(300) == 0
        for process in both:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(300)
            process.stdout.close()
    with ThreadPoolExecutor(2) as threads:
        rivals = [projection(scene, client, location) for _ in range(2)]
        for each in [threads.submit(catch_up, rival) for rival in rivals]:
            each.result(300)
    assert not check_table(scene, location)


@pytest.mark.parametrize("app", ["same", "of its own"])
def test_no_commit_of_two_pipelines_or_two_copies_replaces_another(store, name, app):
    """Each thread creates the table or finds it, and none of their rows is lost."""
    count, writers = 8, 3

    def write(number: int) -> int:
        table = TransactionsTable(in_bucket(store, name))
        pipeline, lost = "p" if app == "same" else f"p{number}", 0
        for _ in range(count):
            while True:
                offset = table.known(pipeline) + 1
                values = {"pipeline": pipeline, "ledger": "l", "ledger_offset": offset}
                try:
                    table.append(pa.Table.from_pylist([values], SCHEMA), pipeline, offset)
                    break
                except OvertakenError:
                    lost += 1
        return lost

    with ThreadPoolExecutor(writers) as threads:
        lost = sum(threads.map(write, range(writers)))
    rows = TransactionsTable(in_bucket(store, name)).query(
        "SELECT pipeline, ledger_offset FROM transactions"
    )
    assert len({(row["pipeline"], row["ledger_offset"]) for row in rows}) == len(rows)
    assert len(rows) == count * writers
    assert (lost > 0) == (app == "same"), "the copies did not meet"


def test_the_commands_read_and_maintain_it_without_a_jvm(
    store, broker, client, tmp_path: Path, name, monkeypatch
):
    made = CopyingPipeline(tmp_path, broker.bootstrap, name)
    profile = tmp_path / "conf" / "bucket.yaml"
    root, conf = f"s3a://{BUCKET}/{name}", store.settings()
    settings = {"kafka": {"bootstrap": broker.bootstrap}, "state": {"root": root}}
    profile.write_text(json.dumps({**settings, "deployment": "d", "spark": {"conf": conf}}))
    words = (made.words[0], "--profile", str(profile))
    with contextlib.closing(made):
        made.ran(20, 20)
        assert run_verb(verbs.audit, *words).out.count("no findings")
        names = made.planned().names
        table = TransactionsTable(in_bucket(store, name))
        catch_up(Projection(table, client, names.pipeline, names.ledger))
        shown = run_verb(verbs.audit, *words)
        assert shown.code == 0, shown
        assert f"table       {root}/audit/transactions" in shown.out
        assert "attempts    2 committed, 0 aborted" in shown.out
        listed = json.loads(run_verb(verbs.status, "--profile", str(profile), "--json").out)
        assert [each["pipeline"] for each in listed["pipelines"]] == [name]
        assert listed["pipelines"][0]["runs"] == "unknown"

        # A verification resumes where the last one ended, as it does on a disk.
        allowed = "--allow-out-of-reach"  # this pipeline's checkpoint is on a disk
        whole, rest = (run_verb(verbs.verify, *words, allowed) for _ in range(2))
        assert (whole.code, rest.code) == (0, 0), (whole, rest)
        assert f"{root}/verified/eos.{name}.json" in whole.out
        assert "where the verification of" not in whole.out
        assert "where the verification of" in rest.out
        monkeypatch.chdir(tmp_path)
        assert maintain(["--profile", str(profile)]) == 0

        # Credentials that the store rejects are reported, not taken for an empty table.
        wrong = {**conf, "spark.hadoop.fs.s3a.secret.key": "wrong"}
        profile.write_text(json.dumps({**settings, "deployment": "d", "spark": {"conf": wrong}}))
        refused = run_verb(verbs.audit, *words)
        assert refused.code == 5, refused
        assert "audit_table_unavailable" in refused.err
        assert "lacked the necessary privileges" in refused.err
