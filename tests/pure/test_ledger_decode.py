"""Ledger records: what any release wrote is decoded, anything else is refused with its offset."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from support.errors import raises
from support.simulated_broker.wire import stored_at

import eos
from eos.audit import rows
from eos.errors import PromiseBrokenError
from eos.inspect.explanation_render import _record as as_json
from eos.inspect.layout import record_time
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.records.record_batch import stamp
from eos.ledger.decoder import decoded
from eos.ledger.receipt import AppendedBatch, Receipt
from eos.ledger.record import AttemptRecord, Position, RowCounts, TableState, encoded
from eos.verify.history import attempt_of

ME = Identity(77, 3)
OWNER = {"deployment": "/srv/a", "host": "h", "process": 17, "version": "0.1.0"}
ENDS = {TopicPartition("events", 0): 5, TopicPartition("events", 11): 9}
POSITION = Position(
    ENDS,
    {"events": "s5gk0nGTRPOMdg5sCf2vKg"},
    "0c8e",
    3,
    is_reset=True,
    checkpoint="0007-77-3",
    producers="12/0f3a/991",
    validate_first=8,
    tables={"history": TableState("7f", 12, 3, RowCounts(5, 2, 1), "0f" * 32)},
)
NEWER = {"format": 2, "pipeline": "p", **ME._asdict()}
ROUNDS = 2_000


def attempt() -> AttemptRecord:
    dedup = {
        "verdicts": {"appended": 4, "duplicate": 1},
        "producers": [["events", 0, "till-7", "duplicate", 1, 2, 2]],
        "gaps": [["events", 0, "till-7", 3, 38, 41, 812]],
        "states": 12,
        "repeat": {"before": "11/0f3a/9", "now_ms": 1_000, "accepts_gap": False},
    }
    batches = (AppendedBatch(0, 2, 10, 12, 5), AppendedBatch(3, 4, 13, 14, 5))
    receipts = [Receipt("out", p, 5, 10, 14, 100, 2**32 - 1, batches) for p in range(2)]
    starts = dict.fromkeys(ENDS, 2)
    refused = {"json": {"dropped": 1}}
    measures = {"lag_ms": 1_500, "previous_ms": {"ledger": 3, "end": 9}}
    more = {"refused": refused, "dedup": dedup, "reads": {"customers": 4}, **measures}
    return AttemptRecord(2, ME, starts, receipts, 1_000, **more)


def bodies() -> list[dict[str, Any]]:
    failed = [{"producer_id": 77, "epoch": 2, "reason": "died", "error": "fenced", "number": None}]
    starts = {"events": {"0": 2}}
    failed.append({**failed[0], "epoch": 1, "starts": starts, "ends": starts, "at_ms": 5})
    note = {"by": "a@h", "at": "2026-01-31T18:00:00+00:00", "why": "", "foreign_until": 4}
    made = [
        encoded("p", OWNER, "attempt", POSITION, attempt(), None, failed, ME),
        encoded("p", OWNER, "recovery", POSITION, None, note, (), ME),
        encoded("p", OWNER, "start", Position({}, {})),  # without an identity
    ]
    return [json.loads(stored_at(stamp(blob, ME, 0), 0)[0].value or b"") for blob in made]


RECEIPT = bodies()[0]["attempt"]["receipts"][0]
(STORED,) = stored_at(stamp(encoded("p", OWNER, "start", POSITION), ME, 0), 31)


def read(value: bytes | dict[str, Any] | None, **other: Any) -> Any:
    raw = json.dumps(value).encode() if isinstance(value, dict) else value
    return decoded("p", "ledger", STORED._replace(value=raw, **other))


@pytest.mark.parametrize("body", bodies(), ids=lambda body: body["kind"])
def test_a_record_of_the_pipeline_is_decoded(body) -> None:
    record = read(body)
    assert (record.kind, record.offset, record.identity) == (body["kind"], 31, ME)
    assert record.foreign_until == (4 if body["kind"] == "recovery" else 0)
    if record.kind != "start":
        assert record.position == POSITION


@pytest.mark.parametrize("body", bodies(), ids=lambda body: body["kind"])
def test_a_record_that_names_no_identity_is_of_an_older_release(body) -> None:
    """Its attempts named theirs."""
    older = {name: each for name, each in body.items() if name not in {"producer_id", "epoch"}}
    assert read(older).position == read(body).position
    if body["kind"] == "attempt":
        with raises("ledger_foreign") as caught:
            read(older, epoch=5)
        assert "names producer 77/3, but 77/5 wrote it" in caught.value.message


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"is_transactional": False, "producer_id": -1, "epoch": -1}, "not part of a transaction"),
        ({"is_transactional": False}, "not part of a transaction"),
        ({"sequence": 4}, "not alone in its transaction"),
        ({"is_alone": False}, "not alone in its transaction"),
        ({"epoch": 4}, "names producer 77/3, but 77/4 wrote it"),
        ({"producer_id": 78}, "names producer 77/3, but 78/3 wrote it"),
    ],
)
@pytest.mark.parametrize("body", bodies()[:2], ids=lambda body: body["kind"])
def test_a_record_of_another_producer_is_refused(body, how, why) -> None:
    with raises("ledger_foreign", PromiseBrokenError) as caught:
        read(body, **how)
    assert why in caught.value.message
    assert caught.value.fields["offset"] == 31
    assert "offset 31 of the ledger 'ledger'" in caught.value.message


@pytest.mark.parametrize(
    ("version", "named", "wanted"),
    [
        ("9.1.0rc2", "9.1.0rc2 wrote it", "release 9.1.0rc2"),
        ("x" * 41, "an unnamed release", "the release that wrote it"),
        ([1], "an unnamed release", "the release that wrote it"),
        ("\x1b[31m", "an unnamed release", "the release that wrote it"),
    ],
)
def test_a_newer_format_names_the_release_to_upgrade_to(version, named, wanted) -> None:
    """Whatever else the record has: no other field of a newer format is read."""
    body = {**NEWER, "owner": {"version": version}, "kind": 7}
    with raises("ledger_newer", PromiseBrokenError) as caught:
        read(body)
    message = caught.value.message
    assert f"offset 31 of the ledger 'ledger' is from a newer release: {named}" in message
    assert f"This is release {eos.__version__}, which reads formats up to 1" in message
    assert f"upgrade this installation to {wanted} or later" in caught.value.hint


@pytest.mark.parametrize("owner", [None, "h", [], {}])
def test_a_newer_format_needs_no_owner(owner) -> None:
    with raises("ledger_newer", PromiseBrokenError):
        read({**NEWER, "owner": owner})


def test_a_newer_format_in_a_record_of_another_producer_is_foreign() -> None:
    """Otherwise any client with WRITE on the topic could stop the pipeline for good."""
    with raises("ledger_foreign", PromiseBrokenError):
        read({**bodies()[0], "format": 2}, is_transactional=False)
    with raises("ledger_foreign", PromiseBrokenError):
        read({**NEWER, "epoch": ME.epoch + 1})
    with raises("ledger_unknown", PromiseBrokenError):
        read({"format": 2, "pipeline": "p", "owner": OWNER})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["ends", "events", "0"], -1),
        (["ends", "events", "0"], 2**63),
        (["ends", "events", "0"], True),
        (["ends", "events", "0"], 5.0),
        (["ends", "events", "00"], 5),
        (["ends", "events", "-1"], 5),
        (["ends", "../../etc", "0"], {}),
        (["topic_ids", ".."], "id"),
        (["checkpoint"], "../../.."),
        (["checkpoint"], "0001/../.."),
        (["checkpoint"], "/tmp"),
        (["checkpoint"], "aside-0001"),
        (["checkpoint"], "0" * 30),
        (["producers"], "12"),
        (["producers"], "12/0f3a/x"),
        (["producers"], "12/../9"),
        (["producers"], "9" * 19 + "/0f3a/9"),
        (["batch_id"], -2),
        (["batch_id"], "3"),
        (["query_id"], None),
        (["query_id"], "q" * 1001),
        (["kind"], "end"),
        (["kind"], ["start"]),
        (["is_reset"], 1),
        (["at_ms"], 10**18),
        (["owner"], {"host": "h", "process": 1}),
        (["owner", "process"], "17"),
        (["tables", "history", "at"], -2),
        (["tables", "history", "rows"], None),
        (["tables", "history", "rows"], [1, 2]),
        (["tables", "history", "rows"], [1, 2, -1]),
        (["tables", "history", "rows"], [1, 2, 2**63]),
        (["tables", "history", "rows"], [1, 2, True]),
        (["tables", "history", "sha256"], None),
        (["tables", "history", "sha256"], "0f" * 31),
        (["tables", "history", "sha256"], "0F" * 32),
        (["attempt"], None),
        (["attempt", "starts", "events", "0"], 6),
        (["attempt", "starts", "other"], {"0": 1}),
        (["attempt", "number"], 0),
        (["attempt", "receipts"], [{"topic": "out"}]),
        (["attempt", "receipts"], {}),
        (["attempt", "receipts"], [{**RECEIPT, "batches": 1}]),
        (["attempt", "receipts"], [{**RECEIPT, "batches": [[0, 2, 10, 12]]}]),
        (["attempt", "receipts"], [{**RECEIPT, "batches": [[0, 2**31, 10, 12, 5]]}]),
        (["attempt", "receipts"], [{**RECEIPT, "batches": [[0, 2, -1, 12, 5]]}]),
        (["attempt", "receipts"], [{**RECEIPT, "batches": [[0, 2, 10, 12, 5]] * 6}]),
        (["attempt", "lag_ms"], -1),
        (["attempt", "previous_ms"], {"ledger": "3"}),
        (["attempt", "refused", "json"], 1),
        (["attempt", "dedup", "gaps"], [[1]]),
        (["attempt", "dedup", "repeat"], {"before": "12/../9", "now_ms": 5}),
        (["attempt", "dedup", "repeat"], {"before": "", "now_ms": "5"}),
        (["attempt", "dedup", "repeat", "accepts_gap"], 1),
        (["failed"], [{"producer_id": 1}]),
        (["note"], []),
        (["pipeline"], "other"),
        (["format"], "1"),
    ],
)
def test_each_field_has_its_type_and_range(path, value) -> None:
    body = bodies()[0]
    place = body
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value
    with raises("ledger_unknown", PromiseBrokenError) as caught:
        read(body)
    assert "offset 31 of the ledger 'ledger'" in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"\xff{}",
        b'{"format": NaN}',
        b"[" * 100_000,
        b'{"ends": ' + b"9" * 5_000 + b"}",
        json.dumps({**bodies()[0], "query_id": "\ud800"}).encode(),
        json.dumps(bodies()[0]).encode("utf-16"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_that_is_no_json_of_ours_is_refused(value) -> None:
    with raises("ledger_unknown", PromiseBrokenError):
        read(value)


def test_a_receipt_without_record_batches_is_of_an_older_release() -> None:
    body = bodies()[0]
    for each in body["attempt"]["receipts"]:
        del each["batches"]
    assert read(body).attempt == body["attempt"]


def test_a_record_of_200_target_partitions_is_small() -> None:
    """With the largest numbers that a partition may reach, far below a broker's megabyte."""
    batch = AppendedBatch(2**31 - 2, 2**31 - 1, 2**53, 2**53 + 1, 2**42)
    long = "t" * 60
    receipts = [
        Receipt(long, p, 2**40, 2**53, 2**53, 2**50, 2**32, (batch,) * 5) for p in range(200)
    ]
    made = AttemptRecord(1, ME, {}, receipts)
    assert len(encoded("p", OWNER, "attempt", POSITION, made, identity=ME)) < 150_000


def test_what_other_releases_add_is_left_alone() -> None:
    body = bodies()[0]
    body["later"] = {"any": [1, None]}
    body["attempt"]["later"] = body["tables"]["history"]["later"] = 1
    assert read(body).position == POSITION


def test_damaged_records_are_refused_or_can_be_used_by_every_reader() -> None:
    """Seeded, so that each run has the same inputs."""
    random_ = random.Random(7)
    written, accepted = [json.dumps(body) for body in bodies()], 0
    for _ in range(ROUNDS):
        body = json.loads(random_.choice(written))
        for _ in range(random_.randrange(1, 4)):
            damage(random_, body)
        raw = json.dumps(body).encode()
        if random_.random() < 0.2:
            at_byte = random_.randrange(len(raw))
            raw = raw[:at_byte] + random_.randbytes(random_.randrange(3)) + raw[at_byte + 1 :]
        try:
            record = read(raw)
        except PromiseBrokenError:
            continue
        accepted += 1
        used(record)
    assert ROUNDS // 50 < accepted < ROUNDS // 2


def used(record) -> None:
    """As status, recover, audit and verify do."""
    attempt_of(record)
    rows.table(rows.rows("p", "ledger", "id", [record]))
    json.dumps(as_json(record)).encode()
    assert record_time(record)


VALUES = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    1e300,
    "",
    "..",
    "a/b",
    "x" * 2_000,
    [],
    {},
    [[]],
    {"": 0},
]


def damage(random_: random.Random, body: Any) -> None:
    """Replaces, removes or adds one value, anywhere."""
    place = body
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random_.choice(keys)
        below = place[key]
        if not isinstance(below, (dict, list)) or not below or random_.random() < 0.3:
            break
        place = below
    if random_.random() < 0.2:
        del place[key]
    elif isinstance(place, dict) and random_.random() < 0.2:
        place[random_.choice(["0", "events", "...", "a b"])] = copy.deepcopy(random_.choice(VALUES))
    else:
        place[key] = copy.deepcopy(random_.choice(VALUES))
