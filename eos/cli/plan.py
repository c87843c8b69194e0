"""`eos plan`: what will run, as a tree; with --check, whether the cluster and Spark let it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import replace
from typing import Any

from eos.cli.named import find_pipeline, parser_of
from eos.config.load import load_profile
from eos.config.model import PipelineFile, Profile
from eos.doctor.check import Check, asked, note, ok
from eos.doctor.check import lines as check_lines
from eos.plan.plan import Plan, plan
from eos.plan.security import told_who
from eos.plan.tree import lines, mermaid, stages
from eos.transform.functions import load

_ABOUT = """\
Prints the stages that a run executes, and for what is written the guarantee and the mechanism that
gives it. Asks nobody. With --check it asks the cluster (topics, rights, features, timeouts,
replicas, and what the next start would do), the audit table, and a Spark of its own.

  eos plan orders
  eos plan orders --mermaid > orders.mmd
  eos plan orders --check --profile prod
"""
_CODES = """\
Exit codes: 0 it is planned, and nothing was found; 1 findings; 2 usage, or a transform that can't
be loaded; 5 something did not answer.
"""


def plan_verb(words: Sequence[str]) -> int:
    options = _parser().parse_args(words)
    pipeline = find_pipeline(options.pipeline)
    profile = load_profile(options.profile, pipeline.project_root)
    with redirect_stdout(sys.stderr):  # users' modules may print when they are imported
        root, looks = pipeline.project_root, not options.check
        functions = load(pipeline.transform, root, pipeline.folder, looks=looks)
    planned = plan(pipeline, profile, profile.kafka.bootstrap or (), functions)
    found = stages(planned)
    if options.mermaid:
        print("\n".join(mermaid(found)))
        return 0
    if not options.json:
        title = f"{pipeline.name} ({pipeline.path}, profile {profile.name})"
        print("\n".join(lines(title, found)), flush=True)
    checks: list[Check] = []
    for each in _checks(pipeline, profile, planned) if options.check else ():
        checks.append(each)
        if not options.json:
            print("\n".join(check_lines([each])), flush=True)
    is_fine = not any(each.level == "finding" for each in checks)
    if options.json:
        told: dict[str, Any] = {"pipeline": pipeline.name, "profile": profile.name}
        told |= {"stages": [each.as_json() for each in found]}
        if options.check:
            told |= {"checks": [each.as_json() for each in checks], "fine": is_fine}
        print(json.dumps(told))
    return 0 if is_fine else 1


def _checks(pipeline: PipelineFile, profile: Profile, planned: Plan) -> Iterator[Check]:
    from eos.doctor.audit import audit
    from eos.recover.cluster import addresses

    if planned.is_transactional:
        with addresses(profile) as bootstrap:
            yield from _cluster(replace(planned, bootstrap=bootstrap))
        yield from audit(profile)
    else:
        told = "not asked: all that is looked at there is about transactions and their ledger"
        yield note("cluster", told, "a start finds out whether topics and rights are there")
    yield from _registry(planned, profile)
    yield from asked("spark", lambda: _spark(pipeline, profile, _latest(planned, profile)))


def _spark(pipeline: PipelineFile, profile: Profile, planned: Plan) -> Iterator[Check]:
    """On one of its own, without Kafka: what a start would refuse of the steps and sinks."""
    from eos.run.cases import check, order
    from eos.run.local import local_session

    root, has_avro = pipeline.project_root, pipeline.has_avro
    with local_session(profile, root, "eos plan", has_avro=has_avro) as session:
        with redirect_stdout(sys.stderr):  # what users' functions print is not what was asked
            changing, shuffle = check(session, planned), order(session, planned)
        if changing:
            told = f"{', '.join(changing)}: a micro-batch that is redone gets other values"
            yield note("spark", told, "take them from the record, or accept that")
        yield ok("spark", "takes steps and sinks as a stream")
        if shuffle:
            told = f"the source's order is kept up to a shuffle of the steps: {shuffle}"
            yield note("order", told, "leave the shuffle out where readers rely on the order")
        else:
            yield ok("order", "records of a source partition keep theirs in a target partition")


def _registry(planned: Plan, profile: Profile) -> Iterator[Check]:
    from eos.run.registered import subjects, with_registry

    def look() -> Check:
        asked_for = with_registry(planned, profile.registry, looks=True)
        written = [
            f"{each.subject} by the schema with id {each.schema_id}"
            for each in asked_for.outputs.columns.values()
            if each.schema_id
        ]
        told = f"; a run would write {', '.join(written)}" if written else ""
        return ok("registry", f"has {', '.join(subjects(planned))}{told}")

    if subjects(planned):
        yield from asked("registry", look)


def _latest(planned: Plan, profile: Profile) -> Plan:
    from eos.run.registered import with_latest

    return with_latest(planned, profile.registry)


def _cluster(planned: Plan) -> Iterator[Check]:
    from eos.doctor.cluster import cluster
    from eos.doctor.topics import topics
    from eos.transaction.wire import Wire

    with closing(Wire(planned.kafka)) as wire, told_who(planned.security):
        found = list(cluster(wire, planned))
        yield from found
        if not any(each.what == "features" and each.level == "finding" for each in found):
            yield from topics(wire, planned)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("plan", _ABOUT, _CODES)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--mermaid", action="store_true", help="a Mermaid flowchart on stdout")
    shown.add_argument("--check", action="store_true", help="ask cluster, audit table and Spark")
    return parser
