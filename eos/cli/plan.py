"""`eos plan`: print what a run executes.

With --check, also test it on the cluster and on Spark. With --against-running, print what changed
since the last run instead, and whether a restart accepts it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from eos.cli.pipeline_argument import find_chosen
from eos.config.model import PipelineFile, Profile
from eos.config.saved_job import is_job
from eos.errors import EosError, TransformError, UsageError
from eos.inspect.check import Check, checked, failed_by, note, ok
from eos.inspect.check import lines as check_lines
from eos.plan.plan import Plan, plan
from eos.plan.reader import ARROW_NAME, SPARK_NAME, choose_reader
from eos.plan.tree import lines, mermaid, stages
from eos.printable import escaped
from eos.transform.functions import load, named_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.delta.sinks import TablesInLedger
    from eos.plan.delta_sink import Table
    from eos.plan.lookup import LookupTable


def run(options: argparse.Namespace) -> int:
    pipeline, profile = find_chosen(options)
    if options.check and is_job(pipeline):
        raise UsageError(
            "job_check_unsupported",
            f"{pipeline.name} is a Python job: its functions are in the job's own program, so "
            "`--check` can't apply them",
            hint="a start of the job makes the same checks before it fences another instance; "
            "`eos plan NAME` without `--check` shows the plan",
        )
    with redirect_stdout(sys.stderr):  # users' modules may print on import
        if is_job(pipeline):
            functions = named_only(pipeline.transform)
        else:
            functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = plan(pipeline, profile, profile.kafka.bootstrap or (), functions)
    if options.against_running:
        return _compare(planned, profile, is_json=options.json)
    found = stages(planned)
    if options.mermaid:
        print(escaped("\n".join(mermaid(found))))
        return 0
    if not options.json:
        title = f"{pipeline.name} ({pipeline.path}, profile {profile.name})"
        print(escaped("\n".join(lines(title, found))), flush=True)
    checks: list[Check] = []
    for each in _checks(options, pipeline, profile, planned) if options.check else ():
        checks.append(each)
        if not options.json:
            print(escaped("\n".join(check_lines([each]))), flush=True)
    is_fine = not any(each.level == "finding" for each in checks)
    if options.json:
        document: dict[str, Any] = {"pipeline": pipeline.name, "profile": profile.name}
        document |= {"stages": [each.as_json() for each in found]}
        if options.check:
            document |= {"checks": [each.as_json() for each in checks], "fine": is_fine}
        print(json.dumps(document))
    if any(each.is_unanswered for each in checks):
        return 5
    return 0 if is_fine else 1


def _compare(planned: Plan, profile: Profile, *, is_json: bool) -> int:
    """Print the changes since the last run, and return the exit code that a restart would have."""
    from eos.cli.connection import client_of
    from eos.inspect.against_running import compare
    from eos.inspect.against_running import lines as comparison_lines
    from eos.launch.profile_cluster import addresses

    with addresses(profile) as bootstrap:
        reachable = replace(planned, bootstrap=bootstrap)
        with client_of(reachable) as client:
            found = compare(reachable, client)
    if is_json:
        head = {"pipeline": planned.names.pipeline, "profile": profile.name}
        print(json.dumps({**head, **found.as_json()}))
    else:
        print(escaped("\n".join(comparison_lines(found))))
    return found.exit_code


def _checks(
    options: argparse.Namespace, pipeline: PipelineFile, profile: Profile, planned: Plan
) -> Iterator[Check]:
    """Yield the results of all checks. If no broker answers, yield that and skip the cluster's."""
    from eos.cli.connection import nobody_listens
    from eos.inspect.machine_check import audit
    from eos.launch.profile_cluster import addresses

    known = None
    with addresses(profile) as bootstrap:
        reachable = replace(planned, bootstrap=bootstrap)
        error = nobody_listens(options, pipeline, profile, bootstrap)
        is_answered = True
        for each in _cluster(reachable) if error is None else [failed_by("brokers", error)]:
            yield each
            is_answered = is_answered and not each.is_unanswered
        if planned.tables and is_answered:
            known = _tables_in_ledger(reachable)
    yield from audit(profile)
    yield from _registry(planned, profile)
    yield from checked("spark", lambda: _spark(pipeline, profile, _latest(planned, profile), known))


def _spark(
    pipeline: PipelineFile, profile: Profile, planned: Plan, known: TablesInLedger | None
) -> Iterator[Check]:
    """Yield the results of checking steps, sinks and tables on a local Spark without Kafka.

    A startup makes the same checks, and stops at a failed one.
    """
    from eos.spark.local_session import local_session

    jars = {"has_avro": pipeline.has_avro, "has_delta": pipeline.has_delta}
    with (
        local_session(profile, pipeline.project_root, "eos plan", **jars) as session,
        redirect_stdout(sys.stderr),  # users' prints must not mix with the results
    ):
        found = [
            *checked("spark", lambda: _steps(session, planned)),
            *_lookup_tables(session, planned),
            *_delta_tables(session, planned, known),
        ]
    yield from found


def _steps(session: SparkSession, planned: Plan) -> Iterator[Check]:
    from eos.pipeline_tests.runner import check, order

    changing, shuffle = check(session, planned), order(session, planned)
    if changing:
        message = f"{', '.join(changing)}: the result changes when a micro-batch is retried"
        yield note("spark", message, "use values of the record instead, or accept the change")
    yield ok("spark", "accepts steps and sinks as a streaming query")
    yield from checked("reader", lambda: _reader(session, planned))
    if shuffle:
        message = f"a shuffle of the steps loses the source's order: {shuffle}"
        yield note("order", message, "remove the shuffle if readers rely on the order")
    else:
        yield ok("order", "records of a source partition keep their order in a target partition")


def _reader(session: SparkSession, planned: Plan) -> Check:
    """Return which reader a run uses. Only Spark knows whether a step keeps state."""
    from eos.native import library
    from eos.pipeline_tests.runner import rows_of
    from eos.spark.arrow_plan import described
    from eos.spark.json_parsers import json_parsing
    from eos.transform.plan_check import check_stream

    state = check_stream(rows_of(session, planned), planned.output_mode)
    known = replace(planned, is_stateful=bool(state.operators))
    choice = choose_reader(known, library.status().problem)
    if choice.kind == "arrow":
        parsing = json_parsing(known, session)
        steps = described(known, session, parsing)
        return ok("reader", f"{ARROW_NAME} reads the records{parsing}{steps}")
    return ok("reader", f"{SPARK_NAME} reads the records: {choice.reason}")


def _lookup_tables(session: SparkSession, planned: Plan) -> Iterator[Check]:
    """Yield a check result for each table that steps join: are its columns those of the file?"""
    from eos.spark.lookup_tables import require

    def check(each: LookupTable) -> Check:
        require(replace(planned, lookups=(each,)), session)
        return ok("table", f"{each.name} ({each.path}) has the columns of the pipeline file")

    for each in planned.lookups:
        yield from checked("table", partial(check, each))


def _delta_tables(
    session: SparkSession, planned: Plan, known: TablesInLedger | None
) -> Iterator[Check]:
    """Yield a check result for each Delta table that is written.

    It says what the next run would do with the table: create it, write it, or stop.
    """
    from eos.delta.sinks import open_delta_sinks
    from eos.faults import CrashPlan
    from eos.observe.bus import Bus
    from eos.pipeline_tests.runner import rows_of
    from eos.startup.stateful_pipeline import with_state
    from eos.transform.plan_check import check_stream

    def check(table: Table) -> Check:
        rows = rows_of(session, planned)
        with closing(Bus()) as bus:
            plan = planned
            with suppress(TransformError):  # the check of the steps reports an invalid stream
                plan = with_state(planned, check_stream(rows, planned.output_mode), bus)
            tables = open_delta_sinks(plan, session, bus, CrashPlan())
            assert tables is not None, "it has tables"
            return ok("delta", tables.predict_table(table, rows, known))

    for table in planned.tables:
        yield from checked("delta", partial(check, table))


def _tables_in_ledger(planned: Plan) -> TablesInLedger | None:
    """Return what the ledger records about the pipeline's Delta tables.

    Return None if the ledger is empty or can't be read. The cluster's checks report an error.
    """
    from eos.cli.connection import client_of
    from eos.delta.sinks import TablesInLedger, newest_attempt
    from eos.inspect.snapshot import short_deadline, take_snapshot

    try:
        with client_of(planned) as client:
            view = take_snapshot(planned, client)
            if view.last is None:
                return None
            topic = view.ledger.partition.topic
            ledger_id = client.topics([topic], short_deadline())[topic].topic_id
            return TablesInLedger(ledger_id, view.position, newest_attempt(view.ledger))
    except EosError:
        return None


def _registry(planned: Plan, profile: Profile) -> Iterator[Check]:
    from eos.startup.registered_schemas import subjects, with_registry

    def check() -> Check:
        registered = with_registry(planned, profile.registry, is_preview=True)
        written = [
            f"{each.subject} with schema id {each.schema_id}"
            for each in registered.outputs.columns.values()
            if each.schema_id
        ]
        ids = f"; a run would write {', '.join(written)}" if written else ""
        return ok("registry", f"has {', '.join(subjects(planned))}{ids}")

    if subjects(planned):
        yield from checked("registry", check)


def _latest(planned: Plan, profile: Profile) -> Plan:
    from eos.startup.registered_schemas import with_latest

    return with_latest(planned, profile.registry)


def _cluster(planned: Plan) -> Iterator[Check]:
    from eos.cli.connection import client_of
    from eos.inspect.cluster_check import cluster
    from eos.inspect.topic_check import topics

    with client_of(planned) as client:
        for each in chain(cluster(client, planned), topics(client, planned)):
            yield each
            is_refused = each.subject == "features" and each.level == "finding"
            if is_refused or each.is_unanswered:  # each check would wait for its own time limit
                return
