"""Load the sales of two tills, and check what `sales_clean` made of them.

    demo.py load   --bootstrap HOST:PORT
    demo.py report --bootstrap HOST:PORT [--json]

Each till sends its last sales again after a crash, and one record that is no sale. One sale has
negative cents. `report` reads with librdkafka and exits with 1 if a sale is missing or there twice.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from eos.stamp import Stamp
from eos.testing import difference
from eos.testing.outside import Kafka, set_topic

SOURCE, CLEAN, DEAD = "sales", "sales.clean", "sales.dlq"
SHOPS = ("north", "south")  # each has one till, which writes to the partition of the same number
SALES = 1000
RESENT = 50  # of each till
UNPAID = 500  # the sale with negative cents
OPENING = datetime(2026, 11, 21, 8, tzinfo=timezone.utc)


def sale(number: int) -> dict[str, Any]:
    """Return a sale: each shop makes one a minute."""
    minute = number // len(SHOPS)
    return {
        "sale_id": number,
        "shop": SHOPS[number % len(SHOPS)],
        "cents": -1 if number == UNPAID else 100 + number * 37 % 9_900,
        "sold_at": (OPENING + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def sent(till: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Return all that a till sends: its second process sends again what was not acknowledged."""
    numbers = range(till, SALES, len(SHOPS))
    values = ["no sale", *(json.dumps(sale(number)) for number in numbers)]
    crashed_at = len(values) - RESENT
    with Stamp(folder / SHOPS[till], f"till-{SHOPS[till]}", resumes=True) as stamp:
        yield from stamped(stamp, till, values[:crashed_at])
        stamp.acknowledged()
        yield from stamped(stamp, till, values[crashed_at:])
    with Stamp(folder / SHOPS[till], f"till-{SHOPS[till]}", resumes=True) as stamp:
        yield from stamped(stamp, till, values[stamp.next_of(till) :])


def stamped(stamp: Stamp, partition: int, values: list[str]) -> Iterator[dict[str, Any]]:
    for value in values:
        headers = stamp.headers(partition)
        yield {"value": value, "partition": partition, "headers": headers}


def load(kafka: Kafka, bootstrap: str) -> None:
    if SOURCE not in kafka.topics():
        kafka.create(SOURCE, len(SHOPS))
        set_topic(bootstrap, SOURCE, retention_ms="-1")  # the check reads it again
    present = len(kafka.read(SOURCE))
    with tempfile.TemporaryDirectory(prefix="eos-tills-") as folder:
        records = [record for till in range(len(SHOPS)) for record in sent(till, Path(folder))]
    if present not in {0, len(records)}:
        raise SystemExit(
            f"demo: {SOURCE} has {present:,} records instead of {len(records):,}, because loading "
            "was interrupted or others write there. Remove the state root (.eos)"
        )
    if not present:
        kafka.write(SOURCE, records)
    print(json.dumps({"loaded": len(records) - present, "present": len(records)}))


def report(kafka: Kafka, *, as_json: bool) -> bool:
    wanted = [number for number in range(SALES) if number != UNPAID]
    clean = [record.json["sale_id"] for record in kafka.read(CLEAN)]
    between = difference(wanted, clean)
    counts = {
        "sent": len(kafka.read(SOURCE)),
        "clean": len(clean),
        "dead letters": len(kafka.read(DEAD)),
        "twice": between.extra.total(),
        "lost": between.lost.total(),
    }
    rows = "\n".join(f"  {name:<14}{count:>8,}" for name, count in counts.items())
    print(json.dumps(counts) if as_json else rows)
    return between.is_none


if __name__ == "__main__":
    address = sys.argv[sys.argv.index("--bootstrap") + 1]
    if sys.argv[1] == "load":
        load(Kafka(address), address)
    else:
        sys.exit(0 if report(Kafka(address), as_json="--json" in sys.argv) else 1)
