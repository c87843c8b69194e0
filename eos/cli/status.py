"""`eos status`: does a pipeline run, whose is it, how far it came, what it waits for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing

from eos.cli.named import find_with_ledger, parser_of
from eos.config.load import load_profile
from eos.errors import UnavailableError
from eos.launch.embedded import status_of
from eos.launch.probe import silent
from eos.plan.plan import plan
from eos.plan.security import told_who
from eos.run.running import Runs
from eos.status.status import Status, look
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
    pipeline = find_with_ledger(options.pipeline, "status")
    profile = load_profile(options.profile, pipeline.project_root)
    # As the next command needs it, too.
    named = shlex.join([options.pipeline, *_repeated(options.profile)])
    addresses = profile.kafka.bootstrap
    if addresses is None:
        embedded = status_of(profile.local_root / "broker")
        if not embedded.bootstrap:
            planned = plan(pipeline, profile, ("none:1",), ())
            stopped = Status(planned, Runs.NO)
            return _tell(stopped, named, options.json, "the embedded broker is stopped")
        addresses = tuple(embedded.bootstrap.split(","))
    dead = silent(addresses)
    if len(dead) == len(addresses):
        told = "; ".join(f"{address}: {why}" for address, why in dead.items())
        raise UnavailableError(
            f"{pipeline.name}: nobody listens at the cluster of profile {profile.name!r} ({told})",
            hint=f"`eos doctor {named}` looks at all that a run needs",
        )
    planned = plan(pipeline, profile, tuple(addresses), ())
    with closing(Wire(planned.kafka)) as wire, told_who(planned.security):
        return _tell(look(planned, wire), named, options.json)


def _repeated(profile: str | None) -> list[str]:
    return ["--profile", profile] if profile else []


def _tell(found: Status, named: str, is_json: bool, note: str = "") -> int:
    """`note`: why nothing was asked."""
    if is_json:
        print(json.dumps({**as_json(found, named), "note": note}))
    elif note:
        name = found.planned.names.pipeline
        print(f"pipeline     {name}: does not run, and can't be asked about: {note}")
        print(f"next         eos broker start, then eos status {named}")
    else:
        print("\n".join(lines(found, named)))
    return 0 if found.is_fine else 1
