"""Quix Streams, exactly once. Arguments: port, Kafka's address, a folder."""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application
from turns import Turn, serve

TUNED = {"linger.ms": 20, "batch.size": 262_144, "compression.type": "lz4"}


def taxed(order: dict[str, Any]) -> dict[str, Any]:
    columns = {name: order[name] for name in ("order_id", "customer", "amount")}
    return {**columns, "gross": order["amount"] * 1.19}


def main() -> None:
    port, bootstrap, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]

    def run(turn: Turn) -> None:
        app = Application(
            broker_address=bootstrap,
            consumer_group=turn.target,
            state_dir=folder,
            auto_offset_reset="earliest",
            auto_create_topics=False,
            processing_guarantee="exactly-once",
            commit_interval=1.0,
            producer_extra_config=TUNED,
            loglevel="WARNING",
        )
        read = 0

        def count(_value: Any) -> None:
            nonlocal read
            read += 1
            if read == turn.records:
                app.stop()

        form = "json" if turn.kind == "json" else "bytes"
        records = app.dataframe(
            app.topic(turn.source, key_deserializer="bytes", value_deserializer=form)
        )
        records = records.update(count)
        if turn.kind == "json":
            records = records[records["status"] != "open"].apply(taxed)
        for target in turn.targets:
            records = records.to_topic(
                app.topic(target, key_serializer="bytes", value_serializer=form)
            )
        app.run(collect=False)  # stopping commits

    serve(port, run)


if __name__ == "__main__":
    main()
