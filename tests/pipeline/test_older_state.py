"""The state that commit 2a3beea left opens unchanged: its ledgers, checkpoints and tables.

`tests/fixtures/state-2a3beea.tar.xz` holds the project folder after that commit ran each example
pipeline: the broker's data, and the state root with checkpoints, audit table, dedup states and
Delta tables. `lakehouse` was killed after a commit, so its tables lack the newest micro-batch.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.kafka import kafka_io
from support.spark.project import PROFILE, Project, WarmDriver
from support.verbs import verify

from eos.local.embedded_kafka import EmbeddedKafka
from eos.testing import require_each_once
from eos.testing.outside import fill, read

pytestmark = pytest.mark.long

FIXTURE = Path(__file__).parents[1] / "fixtures" / "state-2a3beea.tar.xz"
# The records are of 2026-11-18: no clock may remove them, or the state of their producers.
KEPT = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": str(2**31 - 1),
    "transactional.id.expiration.ms": str(2**31 - 1),
}
AT_MS = 1_795_000_000_000


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Yield the broker of the unpacked project; its folder's parent is the project's."""
    folder = tmp_path_factory.mktemp("left")
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    with EmbeddedKafka(folder / ".eos" / "broker", config=KEPT) as kafka:
        (folder / "conf").mkdir()
        profile = PROFILE.format(bootstrap=kafka.bootstrap, root=folder / ".eos")
        profile += "deployment: fixture\n"
        (folder / "conf" / "test.yaml").write_text(profile)
        yield kafka


@pytest.fixture
def resume(
    left: EmbeddedKafka,
    warm: WarmDriver,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Return a function that runs a pipeline to the end of its source and then verifies it."""
    folder = left.root.parents[1]
    monkeypatch.chdir(folder)

    def resume(name: str, *options: str) -> str:
        driver = request.getfixturevalue("with_delta") if name == "lakehouse" else warm
        project = Project(folder, left, name, driver)
        done = project.run_warm("--available-now", *options)
        assert done.returncode == 0, done.stderr
        # The examples share topics.
        assert verify([name, "--profile", str(project.profile), "--allow-foreign"]) == 0
        return done.stderr

    return resume


def changes(*numbers: int) -> Iterator[dict[str, Any]]:
    for n in numbers:
        at = "2026-11-18T10:00:00Z"
        value = {
            "order_id": n,
            "state": "open",
            "market": "DE",
            "amount": n,
            "placed": at,
            "at": at,
        }
        yield {"key": f"o{n}", "value": json.dumps(value), "timestamp": AT_MS}


def keys(left: EmbeddedKafka, topic: str) -> list[str]:
    return [(record.key or b"").decode() for record in read(left.bootstrap, topic)]


@pytest.mark.nightly
def test_tables_that_lack_a_micro_batch_are_caught_up(left: EmbeddedKafka, resume: Any) -> None:
    said = resume("lakehouse")
    assert said.count(" caught up: ") == 2, said
    for name in ("orders_history", "orders_now"):
        table = DeltaTable(str(left.root.parent / "lake" / name)).to_pyarrow_table()
        require_each_once(range(40), table["order_id"].to_pylist())
    require_each_once([str(n) for n in range(0, 40, 2)], keys(left, "orders.open"))


def test_dedup_knows_what_producers_sent_before(left: EmbeddedKafka, resume: Any) -> None:
    def payment(n: int) -> dict[str, Any]:
        stamp = {
            "eos.producer": f"till-a{n % 2}",
            "eos.epoch": "0",
            "eos.sequence": str(n // 2),
        }
        value = json.dumps({"payment_id": n, "till": "a", "cents": n})
        return {"value": value, "partition": n % 2, "headers": stamp, "timestamp": AT_MS}

    fill(left.bootstrap, "payments", map(payment, range(34, 50)))
    said = resume("payments_deduped")
    assert "6 duplicate" in said
    require_each_once([str(n) for n in range(50)], keys(left, "payments.once"))


@pytest.mark.nightly
def test_a_session_that_was_open_gets_its_next_click(left: EmbeddedKafka, resume: Any) -> None:
    def click(user: str, at: str) -> dict[str, Any]:
        value = json.dumps({"user": user, "ts": f"2026-11-18T{at}:00Z"})
        return {"key": user, "value": value, "partition": 0, "timestamp": AT_MS}

    fill(left.bootstrap, "clicks", [click("bob", "11:20"), click("ann", "13:20")])
    resume("sessions")
    found = [record.json for record in read(left.bootstrap, "clicks.sessions")]
    sessions = Counter((each["user"], each["first_click"][11:16], each["clicks"]) for each in found)
    assert sessions == Counter([("ann", "10:00", 2), ("bob", "10:05", 1), ("bob", "11:00", 2)])


def test_other_pipelines_resume_at_the_ledgers_ends(left: EmbeddedKafka, resume: Any) -> None:
    order = {"order_id": 61, "customer": "c", "country": "DE", "amount": 1}
    fill(left.bootstrap, "orders", [{"key": "61", "value": json.dumps(order), "timestamp": AT_MS}])
    resume("orders_enriched")
    require_each_once([str(n) for n in range(1, 62)], keys(left, "orders.enriched"))
    fill(left.bootstrap, "orders.changes", changes(40, 41))
    resume("orders_fanned_out")
    require_each_once([f"o{n}" for n in range(42)], keys(left, "orders.current"))


def test_the_audit_table_has_the_rows_of_before(left: EmbeddedKafka, resume: Any) -> None:
    place = left.root.parent / "audit" / "transactions"
    before = DeltaTable(str(place)).to_pyarrow_table(filters=[("pipeline", "=", "orders_enriched")])
    kafka_io.wait_closed(left.bootstrap, "eos.ledger.orders_enriched")
    resume("orders_enriched")
    after = DeltaTable(str(place)).to_pyarrow_table(filters=[("pipeline", "=", "orders_enriched")])
    assert 0 < before.num_rows < after.num_rows
    assert set(before["ledger_offset"].to_pylist()) < set(after["ledger_offset"].to_pylist())
