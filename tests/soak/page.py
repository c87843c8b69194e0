"""The page docs/soak.md, from the reports in tests/soak/reports.

./tests/run soak --hours 2 --seed 7 --report tests/soak/reports/7.json
PYTHONPATH=tests .venv/bin/python -m soak.page > docs/soak.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).with_name("reports")
_HEAD = """# Soak

After this page you know for how long pipelines ran under faults, with which result, and how to repeat it:

```bash
./tests/run soak --hours 2 --seed 7 --report soak-7.json
```

Two transactional producers write to a topic, one pipeline copies it to a second topic, and another one the second to a
third, all without pause. Three `read_committed` consumers read the three topics. Three brokers with replication factor
3 are behind proxies. One or two faults at a time are drawn by the seed: processes and brokers are killed, paused and
replaced, leaders move, requests and responses are lost, delayed, throttled or answered with other error codes, and
another process writes to the disk. The pipelines are the product's transaction code without Spark.

After each round the load stops until everything is copied and read. A checker that shares no code with the product
compares what was written, what each consumer got, and what is in the topics (`tests/history/checker.py`), and committed
offsets must not have gone back. It also compares the pipelines' ledgers with the topics: no owner commits after its
successor, each micro-batch begins where the one before ended, and has the records that its receipts count. At the end it
compares all of it once more, and the ledgers with what the pipelines' processes reported. (Runs without a number of such
reports are older than the checks of ledgers.) A report exists only of runs without an anomaly. Any anomaly ends the run
with exit code 1 and the smallest witness. A run also fails if a rule of the proxies was there three times and struck no
request.

## Runs
"""  # noqa: E501 - a page of docs/ has longer lines
_CURVES = ("MiB at first", "MiB at last", "MiB at most")
_THREADS = ("threads at first", "threads at last", "threads at most")


def reports() -> list[Mapping[str, Any]]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in REPORTS.glob("*.json")]
    return sorted(found, key=lambda report: (report["seed"], report["hours"]))


def page() -> str:
    found = reports()
    hours = sum(report["hours"] for report in found)
    records = sum(report["records checked"] for report in found)
    text = _HEAD + (
        f"\nRuns: {len(found)}. Hours in total: {hours:.2f}. Records checked: {records:,}.\n\n"
        + _table(
            (
                *("seed", "hours", "cores", "rounds", "records", "micro-batches"),
                *("failed attempts", "reports compared"),
            ),
            [
                (
                    report["seed"],
                    report["hours"],
                    report["cores"],
                    report["rounds"],
                    f"{report['records checked']:,}",
                    f"{report['micro-batches committed']:,}",
                    report["attempts failed"],
                    f"{report['reports compared']:,}" if "reports compared" in report else "",
                )
                for report in found
            ],
        )
    )
    faults = sum((Counter(report["faults"]) for report in found), Counter[str]())
    text += "\n## Faults\n\n" + _table(
        ("fault", "times"), [(name.replace("_", " "), n) for name, n in sorted(faults.items())]
    )
    struck = sum((Counter(report.get("requests struck", {})) for report in found), Counter[str]())
    text += "\nRequests that the proxies struck (the seeds 2 and 3 did not count them):\n\n"
    text += _table(
        ("what was done", "requests"),
        [(name.replace("_", " ").lower(), f"{n:,}") for name, n in sorted(struck.items())],
    )
    text += (
        "\n## Longest stall\n\nThe longest time without a record for a consumer, in seconds.\n\n"
    )
    stalls = [(report["seed"], *(report["longest stall in s"].values())) for report in found]
    text += _table(("seed", "source", "second topic", "third topic"), stalls)
    text += "\n## Memory and threads\n\nOf the first and the last tenth of a run, and at most.\n"
    for report in found:
        text += f"\nSeed {report['seed']}, {report['hours']} hours:\n\n" + _table(
            ("process", *_CURVES, *_THREADS),
            [
                (name, *(values[key] for key in (*_CURVES, *_THREADS)))
                for name, values in report["processes"].items()
            ],
        )
    return text


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
