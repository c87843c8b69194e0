"""Writes the tables of peers in the docs, and their picture, from what the benchmark measured.

    PYTHONPATH=tests .venv/bin/python -m bench.peers.page [FOLDER ...]

A folder has the files of `./tests/run bench -k peers`; the default is `.eos/bench`. The newest
measurement of each workload counts, and is kept in docs/benchmarks/peers.json. The rest of the
pages is not changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.arms import CHECKOUT
from bench.bars import Bar, BarChart, Panel
from bench.peers.peers import PEERS
from bench.peers.summary import Latency, Range, Summary, digits, latencies, summaries
from bench.peers.workloads import EVERYONE, WORKLOADS

PAGE = CHECKOUT / "docs" / "benchmarks.md"
WORKLOADS_PAGE = CHECKOUT / "docs" / "benchmarks-peers.md"
PICTURE = CHECKOUT / "docs" / "benchmarks" / "peers.svg"
RAW = PICTURE.with_suffix(".json")
BEGIN, END = "<!-- bench.peers.page writes this part -->", "<!-- end of that part -->"
_OWN = "eos"
_ABSENT = ""
Kept = Mapping[str, Mapping[str, Any]]


def newest(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the newest measurements by name, each with its machine; also those kept earlier."""
    found: dict[str, Any] = json.loads(RAW.read_text(encoding="utf-8")) if RAW.exists() else {}
    for path in sorted((p for each in folders for p in each.glob("*.json")), key=_file_name):
        content = json.loads(path.read_text(encoding="utf-8"))
        for name, measured in content["measurements"].items():
            if name.startswith("peers_"):
                found[name] = {**measured, "machine": content["machine"]}
    return found


def _file_name(path: Path) -> str:
    return path.name  # its time


def table(kept: Kept) -> str:
    """Return one row for each system: throughput, CPU time and latency."""
    copy, orders = (summaries(_runs(kept, name)) for name in ("pass_through", "json"))
    slow, fast = (latencies(_runs(kept, f"latency_{rate}")) for rate in (1_000, 50_000))
    head = ["", "records/s", "time / eos", "CPU s a million", "CPU / eos"]
    head += ["JSON and SQL: time / eos", "latency at 1,000/s", "at 50,000/s"]
    rows = [
        [
            PEERS[name].title,
            *_throughput(copy[name], is_own=name == _OWN),
            _ratio(orders.get(name), "times_eos", is_own=name == _OWN),
            *(_latency(each.get(name)) for each in (slow, fast)),
        ]
        for name in EVERYONE
        if name in copy
    ]
    return _markdown([head, *rows])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])


def workloads_table(kept: Kept) -> str:
    """Return one row for each workload: the time of each peer divided by that of eos."""
    rows = [["time / eos", "eos, records/s", *(PEERS[name].title for name in EVERYONE[1:])]]
    for workload in WORKLOADS:
        found = summaries(_runs(kept, workload.name))
        if _OWN in found:
            ratios = (_ratio(found.get(name), "times_eos", is_own=False) for name in EVERYONE[1:])
            rows.append([workload.title, f"{found[_OWN].records_a_second:,.0f}", *ratios])
    return _markdown(rows)


def picture(kept: Kept) -> BarChart:
    found = {
        name: each
        for name, each in summaries(_runs(kept, "pass_through")).items()
        if not each.problem
    }
    ranges = (
        ("seconds a million records", [each.seconds for each in found.values()]),
        (
            "CPU seconds a million, without the broker",
            [each.cpu_seconds for each in found.values()],
        ),
    )
    return BarChart(
        "Copying a topic, 180 bytes a record",
        [PEERS[name].title for name in found],
        [Panel(title, [_bar(each) for each in values]) for title, values in ranges],
        PEERS[_OWN].title,
    )


def write(kept: Kept) -> None:
    """Replace the generated part of both pages, the picture and the stored measurements. The first
    page and the picture are about `pass_through`, and stay if that was not measured."""
    _replace(WORKLOADS_PAGE, [workloads_table(kept)])
    RAW.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    copied = kept.get("peers_pass_through")
    if copied is not None:
        about = f"{copied['records']:,} records. The machine had {copied['machine']}."
        image = f"![What each system takes to copy a topic]({PICTURE.parent.name}/{PICTURE.name})"
        _replace(PAGE, [table(kept), image, about, *_left_out(kept)])
        PICTURE.write_text(f"{picture(kept).svg()}\n", encoding="utf-8")


def _replace(page: Path, parts: Sequence[str]) -> None:
    """Replace the part of a page between the two marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    part = "\n\n".join([BEGIN, *parts, END])
    page.write_text(f"{before}{part}{after}", encoding="utf-8")


def _runs(kept: Kept, name: str) -> Sequence[Mapping[str, Any]]:
    runs: Sequence[Mapping[str, Any]] = kept.get(f"peers_{name}", {}).get("runs", [])
    return runs


def _throughput(found: Summary, *, is_own: bool) -> list[str]:
    if found.problem:
        return [found.problem, *[_ABSENT] * 3]
    return [
        f"{found.records_a_second:,.0f}",
        _ratio(found, "times_eos", is_own=is_own),
        str(found.cpu_seconds),
        _ratio(found, "cpu_times_eos", is_own=is_own),
    ]


def _ratio(found: Summary | None, figure: str, *, is_own: bool) -> str:
    if found is None or is_own:
        return _ABSENT
    return found.problem or str(getattr(found, figure) or _ABSENT)


def _latency(found: Latency | None) -> str:
    if found is None:
        return _ABSENT
    shown = f"{digits(found.median_ms.median)} ms, 99 %: {digits(found.p99_ms.median)} ms"
    return found.problem or shown


def _bar(seconds: Range) -> Bar:
    """Return the rate: longer is better, and a slow system does not dwarf the others."""
    rate = 1 / seconds.median
    return Bar(rate, 1 / seconds.most, 1 / seconds.least, f"{rate:.2f}")


def _left_out(kept: Kept) -> list[str]:
    found = {name: why for of in kept.values() for name, why in of["left_out"].items()}
    return [
        f"{PEERS[name].title} was left out: {why.splitlines()[0]}." for name, why in found.items()
    ]


def main(words: Sequence[str]) -> None:
    kept = newest([Path(word) for word in words] or [CHECKOUT / ".eos" / "bench"])
    if not kept:
        sys.exit("nothing to write: run ./tests/run bench -k 'peers and pass_through' first")
    write(kept)
    print(workloads_table(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
