"""What demos load, and that the check finds what is missing, twice or strange. No broker here."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from eos.config.load import load_pipeline

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "pipelines" / "quickstart" / "demo.py"


def imported(script: Path):
    spec = importlib.util.spec_from_file_location(f"{script.parent.name}_demo", script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


demo = imported(SCRIPT)
till = imported(ROOT / "pipelines" / "payments_deduped" / "demo.py")
sales = imported(ROOT / "pipelines" / "sales_clean" / "demo.py")


def source(partition: int, offset: int, number: int):
    return demo.Read(partition, offset, json.dumps({"order": number}).encode())


def target(partition: int, offset: int, number: int, at: int = 0):
    value = {"order": number, "origin": {"partition": partition, "offset": offset}}
    return demo.Read(0, at, json.dumps(value).encode())


def tally(sources, targets):
    found = demo.Tally()
    for record in sources:
        found.add_source(record)
    for record in targets:
        found.add_target(record)
    return found.records_in, found.records_out, found.duplicates, found.lost, found.strangers


SOURCES = [source(0, 0, 1), source(0, 1, 2), source(1, 5, 3)]
TARGETS = [target(0, 0, 1), target(0, 1, 2), target(1, 5, 3)]


def test_each_order_once_is_neither_lost_nor_twice():
    assert tally(SOURCES, TARGETS) == (3, 3, 0, 0, 0)
    assert tally(SOURCES, reversed(TARGETS)) == (3, 3, 0, 0, 0)


def test_a_missing_order_is_lost():
    assert tally(SOURCES, TARGETS[1:]) == (3, 2, 0, 1, 0)
    assert tally(SOURCES, []) == (3, 0, 0, 3, 0)


def test_an_order_that_came_twice_is_a_duplicate_and_hides_no_loss():
    assert tally(SOURCES, [TARGETS[0], TARGETS[0], TARGETS[2]]) == (3, 3, 1, 1, 0)
    assert tally(SOURCES, [*TARGETS, *TARGETS]) == (3, 6, 3, 0, 0)
    assert tally(SOURCES, TARGETS + [TARGETS[0]] * 300) == (3, 303, 254, 0, 0)


def test_an_order_number_in_two_source_records_is_a_duplicate():
    sources = [source(0, 0, 1), source(1, 0, 1)]
    assert tally(sources, [target(0, 0, 1), target(1, 0, 1)]) == (2, 2, 1, 0, 0)


@pytest.mark.parametrize(
    "record",
    [
        target(0, 0, 7),  # another order's coordinates
        target(0, 9, 1),
        target(0, -1, 2),
        target(7, 0, 1),
        target(1, 0, -1),  # a gap of the source
        demo.Read(0, 0, b"no json"),
        demo.Read(0, 0, None),
        demo.Read(0, 0, b"[]"),
        demo.Read(0, 0, b'{"order": 1}'),
    ],
)
def test_a_record_that_no_order_explains_is_a_stranger(record):
    assert tally(SOURCES, [*TARGETS, record]) == (3, 4, 0, 0, 1)


def test_the_orders_are_the_same_each_time_and_unique():
    first, second = list(demo.orders(1000)), list(demo.orders(1000))
    assert first == second
    assert [order.number for order in first] == list(range(1000))
    assert {order.partition for order in first} == set(range(demo.PARTITIONS))
    by_key = {}
    for order in first:
        assert by_key.setdefault(order.key, order.partition) == order.partition
        assert json.loads(order.value)["order"] == order.number


def test_a_load_that_ended_in_the_middle_is_completed():
    wanted = list(demo.orders(1000))
    columns = [[o for o in wanted if o.partition == n] for n in range(demo.PARTITIONS)]
    present = [0, 1, 100, len(columns[3])]
    rest = list(demo.missing(present, iter(wanted)))
    for number, column in enumerate(columns):
        assert [o for o in rest if o.partition == number] == column[present[number] :]
    assert list(demo.missing([len(c) for c in columns], iter(wanted))) == []


def entry(kind: str, epoch: int, at_ms: int):
    value = {"kind": kind, "at_ms": at_ms}
    if kind == "attempt":
        value["attempt"] = {"producer_id": 4, "epoch": epoch}
    return demo.Read(0, 0, json.dumps(value).encode())


def test_transactions_are_counted_by_identity_and_recent_ones_by_time():
    ledger = [entry("start", 0, 1), entry("attempt", 1, 5), entry("attempt", 2, 10)]
    assert demo.attempts(ledger, since_ms=6) == (2, 1)
    assert demo.attempts([*ledger, ledger[-1]], since_ms=100) == (2, 0)


def test_the_report_has_the_six_numbers():
    found = demo.Report(100_000, 100_000, 5, 0, 0, 12.3)
    lines = demo.table(found).splitlines()
    assert [line.split()[-1] for line in lines] == ["100,000", "100,000", "5", "0", "0", "12.3"]
    assert len({len(line) for line in lines}) == 1


def test_the_check_shares_no_code_with_eos():
    code = f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}); print('eos' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_quickstarts_file_fits_the_demo():
    found = load_pipeline(SCRIPT.parent, {})
    assert found.project_root == ROOT
    assert found.source.kafka.topic_names == (demo.SOURCE,)
    assert [sink.topic for sink in found.sink.kafka] == [demo.TARGET]
    assert found.sink.kafka[0].create.partitions == demo.PARTITIONS
    assert found.trigger.available_now
    assert 5 * found.source.kafka.max_records <= demo.ORDERS
    assert f"eos.ledger.{found.name}" == demo.LEDGER


def test_the_story_of_the_till_fits_its_pipeline():
    found = load_pipeline(ROOT / "pipelines" / "payments_deduped", {})
    assert found.source.kafka.topic_names == (till.SOURCE,)
    assert [sink.topic for sink in found.sink.kafka] == [till.TARGET]
    assert found.sink.kafka[0].create.partitions == till.TARGET_PARTITIONS
    assert f"eos.ledger.{found.name}" == till.LEDGER


def test_the_till_sends_from_where_its_file_ends_and_numbers_without_a_hole(tmp_path):
    with till.Stamp(tmp_path / "a", till.TILL, resumes=True) as stamp:
        first = list(till.records(stamp, 0, 2))
    assert len({json.loads(record["value"])["payment_id"] for record in first}) == 2 * till.BATCH
    for partition in range(till.PARTITIONS):
        numbers = [dict(r["headers"])["eos.sequence"] for r in first if r["partition"] == partition]
        assert numbers == [b"%d" % number for number in range(till.BATCH)]
    # Nothing was acknowledged: the next process sends the same again.
    with till.Stamp(tmp_path / "a", till.TILL, resumes=True) as stamp:
        assert list(till.records(stamp, 0, 2)) == first


def test_each_till_of_the_chain_sends_its_last_sales_again_under_the_same_stamps(tmp_path):
    for till_number in range(len(sales.SHOPS)):
        sent = list(sales.sent(till_number, tmp_path))
        assert len(sent) == 1 + sales.SALES // len(sales.SHOPS) + sales.RESENT
        assert sent[-sales.RESENT :] == sent[-2 * sales.RESENT : -sales.RESENT]
        numbers = [int(dict(record["headers"])["eos.sequence"]) for record in sent]
        assert sorted(set(numbers)) == list(range(len(sent) - sales.RESENT))
        assert {record["partition"] for record in sent} == {till_number}


def test_the_documents_show_what_the_demos_print():
    guide, readme = (ROOT / "docs" / "quickstart.md").read_text(), (ROOT / "README.md").read_text()
    table = demo.table(demo.Report(100_000, 100_000, 6, 0, 0, 13.2))
    assert f"```\n{table}\n```" in guide
    assert f"```\n{table}\n```" in readme
    told = [f"demo: {till.TILL}{life.machine}: {life.story}\n" for life in till.STORY]
    assert f"```\n{''.join(told)}```" in guide
    dropped = {"duplicate": 2 * 5 * till.BATCH, "fenced": 5 * till.BATCH}
    table = till.table(till.Report(till.SENT, 1500, 1500, dropped, 0, 0, 14.1))
    assert f"```\n{table}\n```" in guide
