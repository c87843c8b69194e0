"""Compare the Delta table with the sales: what all three pipelines made of them.

    demo.py load   --bootstrap HOST:PORT
    demo.py report --bootstrap HOST:PORT [--json]

`report` reads topic and table without Spark, counts the sales of each shop and hour, and exits with
1 if the table has anything else. `load` loads nothing: the pipelines before this one did.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from eos.testing.outside import Kafka

SOURCE = "sales"
TABLE = "sales_by_hour"
SHOWN = 3
HERE = Path(__file__).parents[2] / ".eos" / "lake"
_SAID = {True: "equal to", False: "NOT equal to"}


def expected(kafka: Kafka) -> dict[tuple[str, str], tuple[int, int]]:
    """Count each paid sale of the source once, whatever the pipelines did."""
    sales: dict[int, dict[str, Any]] = {}
    for record in kafka.read(SOURCE):
        value = record.value or b""
        if value.startswith(b"{") and record.json["cents"] > 0:
            sales[record.json["sale_id"]] = record.json
    count, cents = Counter[tuple[str, str]](), defaultdict[tuple[str, str], int](int)
    for sale in sales.values():
        hour = sale["shop"], sale["sold_at"][:13]
        count[hour] += 1
        cents[hour] += sale["cents"]
    return {hour: (count[hour], cents[hour]) for hour in count}


def found(path: str) -> dict[tuple[str, str], tuple[int, int]]:
    made = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    rows = pa.table(made.read_all()).to_pylist()
    table = {
        (row["shop"], row["hour"].strftime("%Y-%m-%dT%H")): (row["sales"], row["cents"])
        for row in rows
    }
    assert len(table) == len(rows), f"{path} has two rows of one shop and hour"
    return table


def report(kafka: Kafka, *, as_json: bool) -> bool:
    table = found(f"{os.environ.get('LAKE') or HERE}/{TABLE}")
    is_right = table == expected(kafka)
    for (shop, hour), (sales, cents) in [] if as_json else sorted(table.items())[:SHOWN]:
        print(f"  {shop}  {hour}:00  {sales:>4} sales  {cents / 100:>10,.2f}")
    answer = {"rows": len(table), "sales": sum(count for count, _ in table.values())}
    rows = f"  {answer['rows']} rows of {answer['sales']} sales, {_SAID[is_right]} the source"
    print(json.dumps({**answer, "equal": is_right}) if as_json else rows)
    return is_right


if __name__ == "__main__":
    cluster = Kafka(sys.argv[sys.argv.index("--bootstrap") + 1])
    if sys.argv[1] == "load":
        print(json.dumps({"loaded": 0, "present": 0}))
    else:
        sys.exit(0 if report(cluster, as_json="--json" in sys.argv) else 1)
