"""`eos audit`: list the outcomes of a pipeline's transactions, and contradictions between them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from eos.audit.history import Transaction, findings, summary
from eos.audit.reader import read_producers, read_transactions
from eos.audit.table import ProducersTable, TransactionsTable
from eos.cli.connection import connected
from eos.cli.parser import Parser
from eos.cli.pipeline_argument import audit_location, find_chosen, project_of_cwd, since
from eos.config.load import load_profile
from eos.config.model import PipelineFile, Profile
from eos.inspect import producers_render
from eos.inspect.audit_live import ClusterState, live
from eos.inspect.audit_render import AuditResult, as_json, lines
from eos.inspect.producers_live import compare_live
from eos.inspect.producers_render import ProducersResult
from eos.inspect.snapshot import cluster_view
from eos.plan.plan import plan
from eos.printable import escaped


def run(options: argparse.Namespace) -> int:
    pipeline, profile = find_chosen(options)
    location = audit_location(profile)
    planned = plan(pipeline, profile, profile.kafka.bootstrap or ("none:1",), ())
    names = planned.names
    producers = ProducersTable(location.sibling("producers"))
    states = read_producers(producers, names.pipeline, names.ledger)
    if options.producers:
        of_pipeline = names.pipeline, names.transactional_id, str(producers.location), states
        return _producers(options, pipeline, profile, ProducersResult(*of_pipeline))
    found = read_transactions(
        TransactionsTable(location), names.pipeline, names.ledger, since(options.since)
    )
    problems = [*findings(found), *states.findings]
    live = _live(pipeline, profile, found) if options.live else None
    if live is not None:
        problems += live.findings
    audited = AuditResult(
        names.pipeline, names.ledger, str(location), found, summary(found), problems, live
    )
    if options.json:
        print(json.dumps(as_json(audited)))
    else:
        print(escaped("\n".join(lines(audited))))
    return 1 if problems else 0


def _producers(
    options: argparse.Namespace, pipeline: PipelineFile, profile: Profile, result: ProducersResult
) -> int:
    """Show the producer states, with `--live` next to those of the leaders."""
    if options.live:
        with connected(pipeline, profile) as (planned, client):
            view = cluster_view(planned, client)
            result = replace(result, live=compare_live(view, result.states))
    if options.json:
        print(json.dumps(producers_render.as_json(result)))
    else:
        print(escaped("\n".join(producers_render.lines(result))))
    return 1 if result.findings else 0


def maintain(arguments: Sequence[str]) -> int:
    """Compact the audit table of all pipelines, and delete files that no reader needs.

    A run does the same for its own pipeline.
    """
    parser = Parser(prog="maintain", description=maintain.__doc__)
    parser.add_profile("profile with the state root: conf/NAME.yaml")
    profile = load_profile(parser.parse(arguments).profile, project_of_cwd())
    table = TransactionsTable(audit_location(profile))
    pipelines = table.query("SELECT DISTINCT pipeline FROM transactions ORDER BY 1")
    for row in pipelines:
        table.compact(row["pipeline"])
    removed = table.clean() if pipelines else 0
    producers = ProducersTable(table.location.sibling("producers"))
    if producers.query("SELECT pipeline FROM producers LIMIT 1"):
        removed += producers.clean()
    print(f"{table.location}: {len(pipelines)} pipelines, {removed} files deleted")
    return 0


def _live(pipeline: PipelineFile, profile: Profile, found: Sequence[Transaction]) -> ClusterState:
    with connected(pipeline, profile) as (planned, client):
        view = cluster_view(planned, client)
        return live(view, found)
