"""What do the single turns say? Medians, ranges, and ratios to eos in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.conftest import Figures
from bench.peers.peers import PEERS
from bench.peers.workloads import Workload

Run = Mapping[str, Any]


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Range:
    """A median, and the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Range:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        shown = [digits(each) for each in (self.median, self.least, self.most)]
        return f"{shown[0]} ({shown[1]} to {shown[2]})"


@dataclass(frozen=True)
class Summary:
    """One peer's rounds. Seconds are for a million source records."""

    records: int  # of a round
    seconds: Range
    cpu_seconds: Range
    broker_cpu_seconds: Range
    times_eos: Range | None  # its time, divided by that of eos in the same round
    cpu_times_eos: Range | None
    problem: str  # why the figures do not count; empty if they do

    @property
    def records_a_second(self) -> float:
        return 1e6 / self.seconds.median


def summaries(runs: Sequence[Run]) -> dict[str, Summary]:
    """Return the peers that finished a round, in the order in which they are declared."""
    return {name: found for name in PEERS if (found := _summary(runs, name)) is not None}


def failures(runs: Sequence[Run]) -> dict[str, str]:
    return {run["peer"]: run["failed"] for run in runs if "failed" in run}


def _summary(runs: Sequence[Run], name: str) -> Summary | None:
    mine = [run for run in runs if run["peer"] == name and "failed" not in run]
    if not mine:
        return None
    return Summary(
        mine[0]["records"],
        *(Range.of([_a_million(run, figure) for run in mine]) for figure in _FIGURES),
        times_eos=_ratio(runs, mine, "seconds"),
        cpu_times_eos=_ratio(runs, mine, "cpu_seconds"),
        problem=_problem(runs, mine, name),
    )


def _problem(runs: Sequence[Run], mine: Sequence[Run], name: str) -> str:
    wrong = [run["wrong"] for run in mine if run["wrong"]]
    failed = failures(runs).get(name, "")
    return f"wrong output: {wrong[0]}" if wrong else failed.partition("\n")[0]


_FIGURES = ("seconds", "cpu_seconds", "broker_cpu_seconds")


def _a_million(run: Run, figure: str) -> float:
    return float(run[figure]) * 1e6 / float(run["records"])


def _ratio(runs: Sequence[Run], mine: Sequence[Run], figure: str) -> Range | None:
    of_eos = {
        run["round"]: _a_million(run, figure)
        for run in runs
        if run["peer"] == "eos" and "failed" not in run
    }
    pairs = [(run, of_eos[run["round"]]) for run in mine if run["round"] in of_eos]
    return Range.of([_a_million(run, figure) / eos for run, eos in pairs]) if pairs else None


def tell(
    figures: Figures, workload: Workload, runs: Sequence[Run], left_out: Mapping[str, str]
) -> None:
    """Add the workload's figures to the report."""
    what = f"{workload.title}, {workload.records:,} records"
    for name, found in summaries(runs).items():
        title = PEERS[name].title
        part = "" if found.records == workload.records else f" (from {found.records:,} of them)"
        if found.problem:
            figures.add(f"{what}, {title}", f"DOES NOT COUNT: {found.problem}")
        figures.add(f"{what}, {title}: records/s", f"{found.records_a_second:,.0f}{part}")
        figures.add("  seconds a million records", str(found.seconds))
        figures.add("  CPU seconds a million, without the broker", str(found.cpu_seconds))
        figures.add("  CPU seconds a million of the broker", str(found.broker_cpu_seconds))
        if name != "eos" and found.times_eos and found.cpu_times_eos:
            figures.add("  time / eos", str(found.times_eos))
            figures.add("  CPU / eos", str(found.cpu_times_eos))
    _tell_missing(figures, what, runs, left_out)


def tell_latency(
    figures: Figures, rate: int, runs: Sequence[Run], left_out: Mapping[str, str]
) -> None:
    """Add the latencies of one rate to the report."""
    what = f"latency at {rate:,} records/s"
    for name, found in latencies(runs).items():
        if found.problem:
            figures.add(f"{what}, {PEERS[name].title}", f"DOES NOT COUNT: {found.problem}")
        figures.add(f"{what}, {PEERS[name].title}: median", f"{found.median_ms} ms")
        figures.add("  99th percentile", f"{found.p99_ms} ms")
        figures.add("  CPU seconds of a turn, without the broker", str(found.cpu_seconds))
    _tell_missing(figures, what, runs, left_out)


@dataclass(frozen=True)
class Latency:
    """One peer's rounds at one rate: the medians of all rounds, and their 99th percentiles."""

    median_ms: Range
    p99_ms: Range
    cpu_seconds: Range
    problem: str


def latencies(runs: Sequence[Run]) -> dict[str, Latency]:
    found = {}
    for name in PEERS:
        mine = [run for run in runs if run["peer"] == name and run.get("median_ms") is not None]
        if mine:
            ranges = (
                Range.of([run[figure] for run in mine])
                for figure in ("median_ms", "p99_ms", "cpu_seconds")
            )
            found[name] = Latency(*ranges, problem=_problem(runs, mine, name))
    return found


def _tell_missing(
    figures: Figures, what: str, runs: Sequence[Run], left_out: Mapping[str, str]
) -> None:
    for name, why in {**left_out, **failures(runs)}.items():
        kind = "left out" if name in left_out else "failed"
        lines = [line for line in why.splitlines() if line.strip()]
        figures.add(f"{what}, {PEERS[name].title}: {kind}", f"{lines[0]} ... {lines[-1]}")
