"""A transactional loop with confluent-kafka. Arguments: port, Kafka's address."""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.peers.confluent_loop import confluent
from bench.peers.programs.turns import Turn, serve


def main() -> None:
    port, bootstrap = int(sys.argv[1]), sys.argv[2]

    def run(turn: Turn) -> None:
        def records(message: Any) -> list[tuple[str, bytes]]:
            value = message.value()
            if turn.kind == "json":
                order = json.loads(value)
                if order["status"] == "open":
                    return []
                value = json.dumps(
                    {
                        "order_id": order["order_id"],
                        "customer": order["customer"],
                        "amount": order["amount"],
                        "gross": order["amount"] * 1.19,
                    }
                ).encode()
            return [(target, value) for target in targets]

        targets = turn.targets
        confluent(bootstrap, turn.source, turn.target, turn.records, turn.batch, records)

    serve(port, run)


if __name__ == "__main__":
    main()
