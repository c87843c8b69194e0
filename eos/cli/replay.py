"""`eos replay`: write dead letters back to their source topics, each once."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing

from eos.cli.connection import connected
from eos.cli.pipeline_argument import find_chosen, since
from eos.errors import UsageError
from eos.faults import CrashPlan
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.printable import escaped
from eos.replay.pending_dead_letters import DeadLetterTopic
from eos.replay.replayer import ReplayRequest, ReplayResult, put_back
from eos.spark.dedup_columns import RULES
from eos.suggestion import suggestion


def run(options: argparse.Namespace) -> int:
    began = since(options.since)
    since_ms = 0 if began is None else max(0, int(began.timestamp() * 1000))
    pipeline, profile = find_chosen(options)
    has_stamps, rule = pipeline.producers is not None, options.rule
    if has_stamps and rule is not None and rule not in RULES and not options.dry_run:
        raise UsageError(
            "replay_dedup_rule",
            f"{pipeline.name}: dead letters of the rule {rule!r} can't be put back in a pipeline "
            "with `dedup`: dedup accepted these records before the rule rejected them, so it would "
            "drop them as duplicates",
            hint="let the upstream send these records again with new sequence numbers; `eos replay "
            f"{pipeline.name} --dry-run` counts them",
        )
    with connected(pipeline, profile) as (planned, client), closing(Bus()) as bus:
        bus.subscribe(Console())
        topic = DeadLetterTopic(planned, client, profile.names.prefix, profile.state.root)
        waiting = topic.waiting(since_ms)
        rules = [each.name for each in planned.decode.causes]
        chosen = _rules(options.rule, rules, waiting)
        known = [each for each in chosen if has_stamps and each not in RULES]
        done: dict[str, ReplayResult] = {}
        for rule in [] if options.dry_run else [each for each in chosen if each not in known]:
            left = options.limit - sum(each.records for each in done.values())
            if waiting.get(rule, 0) and left > 0:
                choice = ReplayRequest(rule, since_ms, left, options.now)
                crash = CrashPlan.from_environment()
                done[rule] = put_back(topic, choice, bus, crash, take_over=options.take_over)
    untouched = [] if options.dry_run else known
    _print_results(
        planned.names.pipeline, topic.name, chosen, waiting, done, untouched, as_json=options.json
    )
    return 0


def _rules(choice: str | None, known: Sequence[str], waiting: Mapping[str, int]) -> list[str]:
    """Return the rules to replay: `choice`, or without it all rules.

    All rules are those of the pipeline file (`known`) and others that have dead letters.
    """
    every = list(dict.fromkeys([*known, *sorted(waiting)]))
    if choice is None:
        return every
    if choice not in every:
        raise UsageError(
            "rule_unknown",
            f"there is no rule {choice!r}{suggestion(choice, every)}",
            hint="write `--rule` with the name of a rule in `expect`, or `malformed`; without "
            "--rule, dead letters of all rules are put back",
        )
    return [choice]


def _print_results(
    pipeline: str,
    topic: str,
    chosen: Sequence[str],
    waiting: Mapping[str, int],
    done: Mapping[str, ReplayResult],
    untouched: Sequence[str],
    *,
    as_json: bool,
) -> None:
    rules = {
        rule: {
            "waiting": waiting.get(rule, 0),
            "put_back": done[rule].records if rule in done else 0,
            "passed_over": done[rule].passed_over if rule in done else 0,
        }
        for rule in chosen
    }
    if as_json:
        print(json.dumps({"pipeline": pipeline, "topic": topic, "rules": rules}))
        return
    print(f"{pipeline}: dead letters in {topic}")
    width = max(map(len, rules), default=0)
    for rule, numbers in rules.items():
        text = f"{numbers['waiting']:,} waited, {numbers['put_back']:,} put back"
        if numbers["passed_over"]:
            text += f", {numbers['passed_over']:,} older ones skipped for good"
        if rule in untouched and numbers["waiting"]:
            text += "; not put back, because dedup accepted their numbers before"
        print(escaped(f"  {rule:<{width}}  {text}"))
