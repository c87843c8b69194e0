"""`eos status`: print whether a pipeline runs, its owner, its position and lag."""

from __future__ import annotations

import argparse
import json
from functools import partial

from eos.cli.connection import client_of, nobody_listens
from eos.cli.pipeline_argument import find_chosen, project_of_cwd, repeated
from eos.cli.watch import Look, watch
from eos.config.load import load_profile
from eos.errors import UsageError
from eos.inspect.status import PipelineStatus, read_status
from eos.inspect.status_list import lines as lines_of
from eos.inspect.status_list import list_pipelines
from eos.inspect.status_render import as_json, lines
from eos.local.cluster_status import status_of
from eos.location import local_path
from eos.plan.plan import plan
from eos.printable import escaped
from eos.startup.liveness import Liveness


def run(options: argparse.Namespace) -> int:
    if options.watch is not None:
        return watch(partial(_look, options), options.watch, as_json=options.json)
    found = _look(options)
    print(json.dumps(found.fields) if options.json else found.text)
    return found.exit_code


def _look(options: argparse.Namespace) -> Look:
    if options.pipeline is None:
        return _list(options.profile)
    pipeline, profile = find_chosen(options)
    name = repeated(options)
    addresses = profile.kafka.bootstrap
    if addresses is None:
        embedded = status_of(profile.local_root / "broker")
        if not embedded.bootstrap:
            planned = plan(pipeline, profile, ("none:1",), ())
            stopped = PipelineStatus(planned, Liveness.NO)
            return _shown(stopped, name, "the embedded broker is stopped")
        addresses = tuple(embedded.bootstrap.split(","))
    error = nobody_listens(options, pipeline, profile, addresses)
    if error is not None:
        raise error
    planned = plan(pipeline, profile, tuple(addresses), ())
    with client_of(planned) as client:
        return _shown(read_status(planned, client), name)


def _list(profile_name: str | None) -> Look:
    profile = load_profile(profile_name, project_of_cwd())
    # Late: they import Delta, which the status of one pipeline does not need.
    from eos.audit.table import TransactionsTable
    from eos.audit.updater import location_of

    location, root = location_of(profile), profile.state.root
    if location is None:
        raise UsageError(
            "state_root_remote",
            f"profile {profile.name!r}: the state root {root} is neither a folder of this machine "
            "nor a bucket of S3, so its pipelines can't be listed",
            hint="give the name of a pipeline: `eos status NAME`",
        )
    local = local_path(root)
    locks = None if local is None else local / "locks"
    found = list_pipelines(locks, profile.names.prefix, TransactionsTable(location))
    pipelines = [each.as_json() for each in found]
    text = "\n".join(lines_of(str(local or root), found))
    return Look(text, {"state_root": str(local or root), "pipelines": pipelines})


def _shown(found: PipelineStatus, named: str, note: str = "") -> Look:
    """Return the status to show.

    `note` is the reason why the cluster was not queried; it is empty if it was.
    """
    text = escaped("\n".join(lines(found, named)))
    if note:
        name = found.planned.names.pipeline
        text = (
            f"pipeline     {name}: does not run; the cluster was not queried: {note}\n"
            f"next         eos broker start, then eos status {named}"
        )
    return Look(text, {**as_json(found, named), "note": note}, 0 if found.is_fine else 1)
