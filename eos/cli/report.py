"""`eos report`: write one HTML page about a pipeline's transactions."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import eos
from eos.audit.reader import walk
from eos.audit.table import TransactionsTable
from eos.cli.connection import connected
from eos.cli.pipeline_argument import audit_location, find_chosen, since
from eos.config.model import PipelineFile, Profile
from eos.errors import EosError, UsageError
from eos.inspect.audit_live import ClusterState, live
from eos.inspect.snapshot import cluster_view
from eos.plan.plan import plan
from eos.report.conclusion import Level, verdict
from eos.report.content import PageContent, gather
from eos.report.lag import moments
from eos.report.page import Subject, page
from eos.report.units import time


def run(options: argparse.Namespace) -> int:
    pipeline, profile = find_chosen(options)
    location = audit_location(profile)
    begin = since(options.since)
    names = plan(pipeline, profile, profile.kafka.bootstrap or ("none:1",), ()).names
    # Check the output path first. Otherwise a missing folder would be reported only after the
    # table was read, which may take minutes.
    output = _writable(options.output or Path(f"{names.pipeline}.report.html"))
    content = gather(walk(TransactionsTable(location), names.pipeline, names.ledger, begin))
    cluster = None if options.offline else _live(pipeline, profile, content)
    subject = Subject(
        pipeline=names.pipeline,
        ledger=names.ledger,
        table=str(location),
        version=eos.__version__,
        made_at=datetime.now(timezone.utc),
        since=time(begin) if begin else "",
    )
    _write(output, page(subject, content, cluster))
    conclusion = verdict(content, cluster)
    if cluster is not None and cluster.problem:
        print(f"eos: the page has no data of the cluster: {cluster.problem}", file=sys.stderr)
    document = {
        "page": str(output),
        "verdict": conclusion.level.value,
        "sentence": conclusion.sentence,
    }
    if options.json:
        print(json.dumps(document))
    else:
        print(f"{conclusion.word}: {conclusion.sentence}\n{output}")
    return 1 if conclusion.level in {Level.BROKEN, Level.LOOK} else 0


def _live(pipeline: PipelineFile, profile: Profile, content: PageContent) -> ClusterState:
    """Return the cluster's state.

    If the cluster does not respond, return a state with the reason, which the page shows instead.
    """
    try:
        with connected(pipeline, profile) as (planned, client):
            view = cluster_view(planned, client)
            return live(view, list(content.recent), content.position, moments(content))
    except EosError as error:
        return ClusterState(problem=error.message)


def _writable(output: Path) -> Path:
    if output.is_dir():
        raise UsageError(
            "report_output_is_folder",
            f"--output {output} is a folder",
            hint=f"give the path of a file, such as `--output {output}/report.html`",
        )
    folder = output.parent
    if not folder.is_dir():
        raise UsageError(
            "report_folder_missing",
            f"the folder of --output {output} does not exist",
            hint=f"create it with `mkdir -p {folder}`, or choose another path",
        )
    return output


def _write(output: Path, text: str) -> None:
    """Write the page to another file and rename it, so that a browser never reads half a page."""
    try:
        with TemporaryDirectory(dir=output.parent, prefix=".report-") as aside:
            created = Path(aside) / "page"
            created.write_text(text, encoding="utf-8")
            created.replace(output)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            "report_not_writable",
            f"the report {output} can't be written: {reason}",
            hint="give this user write access, free some disk space, or choose another path with "
            "`--output FILE`",
        ) from error
