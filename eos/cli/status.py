"""`eos status`: does a pipeline run, whose is it, how far it came, what it waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing

from eos.cli.named import find_pipeline, parser_of
from eos.config.load import load_profile
from eos.launch.embedded import status_of
from eos.plan.plan import plan
from eos.plan.security import told_who
from eos.status.status import Runs, Status, look
from eos.status.words import as_json, lines
from eos.transaction.wire import Wire

_ABOUT = """\
Tells whether a pipeline runs, who owns it, its last committed micro-batch, what is open, how far it
is behind, and what it waits for. Only looks; an embedded broker that is stopped stays so.

  eos status orders
  eos status orders --json | jq .lag
"""
_CODES = """\
Exit codes: 0 it runs, or ended cleanly; 1 it died, or a transaction hangs; 2 usage; 5 something did
not answer.
"""


def status(words: Sequence[str]) -> int:
    options = parser_of("status", _ABOUT, _CODES).parse_args(words)
    pipeline = find_pipeline(options.pipeline)
    profile = load_profile(options.profile, pipeline.project_root)
    addresses = profile.kafka.bootstrap
    if addresses is None:
        embedded = status_of(profile.local_root / "broker")
        if not embedded.bootstrap:
            planned = plan(pipeline, profile, ("none:1",), ())
            return _tell(Status(planned, Runs.NO), "the embedded broker is stopped", options.json)
        addresses = tuple(embedded.bootstrap.split(","))
    planned = plan(pipeline, profile, tuple(addresses), ())
    with closing(Wire(planned.kafka)) as wire, told_who(planned.security):
        return _tell(look(planned, wire), "", options.json)


def _tell(found: Status, note: str, is_json: bool) -> int:
    """`note`: why nothing was asked."""
    if is_json:
        print(json.dumps({**as_json(found), "note": note}))
    elif note:
        name = found.planned.names.pipeline
        print(f"pipeline     {name}: does not run, and can't be asked about: {note}")
        print(f"next         eos broker start, then eos status {name}")
    else:
        print("\n".join(lines(found)))
    return 0 if found.is_fine else 1
