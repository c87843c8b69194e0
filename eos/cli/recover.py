"""`eos recover`: explain why a pipeline stopped, and change the position at which it resumes.

Without a change option, such as --accept-start, the command explains. With one, it shows what would
change. With --yes, it applies the change.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager

from eos.cli.connection import connected
from eos.cli.pipeline_argument import find_chosen
from eos.errors import UnavailableError
from eos.inspect.explanation import explain
from eos.inspect.explanation_render import as_json, lines
from eos.inspect.startup_stops import Command, command_of
from eos.kafka.client import KafkaClient
from eos.plan.plan import Plan
from eos.printable import escaped
from eos.recover import (
    checkpoint,
    dedup_states,
    delta_tables,
    foreign_records,
    group_offsets,
    rewind,
    source,
)
from eos.recover.apply import AppliedChange, act, propose
from eos.recover.change import Verb


def run(options: argparse.Namespace) -> int:
    verb = _verb(options)
    if verb is None and options.yes:
        options.parser.error(
            "--yes applies a change: add the option of one, such as --set-checkpoint-aside"
        )
    if options.restore_tables and not options.rewind_to:
        options.parser.error("--restore-tables needs --rewind-to OFFSET|TIME")
    command = command_of(options.pipeline, _options_to_repeat(options))
    with _readable():
        pipeline, profile = find_chosen(options)
        with connected(pipeline, profile) as (planned, client):
            if verb is None:
                return _explain(planned, client, command, is_json=options.json)
            return _change(planned, client, verb, command, options)


def _explain(planned: Plan, client: KafkaClient, command: Command, *, is_json: bool) -> int:
    found = explain(planned, client)
    if is_json:
        print(json.dumps(as_json(found, command)))
    else:
        print(escaped("\n".join(lines(found, command))))
    return 1 if found.stops else 0


def _change(
    planned: Plan, client: KafkaClient, verb: Verb, command: Command, options: argparse.Namespace
) -> int:
    """Apply a change with --yes; without it, only show the change. Return the exit code."""
    if options.yes:
        done = act(planned, client, verb, reason=options.why, take_over=options.take_over)
    else:
        done = AppliedChange(propose(planned, client, verb, take_over=options.take_over))
    return _print_change(planned, done, command, is_done=options.yes, is_json=options.json)


def _print_change(
    planned: Plan, done: AppliedChange, command: Command, *, is_done: bool, is_json: bool
) -> int:
    """Print the change. Return 0 if it is applied or nothing would change, else 1."""
    change = done.change
    code = 0 if is_done or change.is_nothing else 1
    next_step = command(f"{change.verb} --yes")
    if is_json:
        document = {
            "pipeline": planned.names.pipeline,
            "done": is_done and not change.is_nothing,
            "ledger_offset": done.offset,
            "command": next_step if code else None,
            **change.as_json(),
        }
        print(json.dumps(document))
        return code
    if change.is_nothing:
        print("\n".join(["nothing to do", *(f"  {line}" for line in change.remarks)]))
        return code
    print(f"{command(change.verb)} {'did' if is_done else 'would do'}")
    print(escaped("\n".join(f"  {line}" for line in (*change.lines(), *change.remarks))))
    if code:
        print(f"nothing is changed yet; to apply it:\n  $ {next_step}")
    elif done.offset is not None:
        print(f"written to {planned.names.ledger} at offset {done.offset}")
    return code


@contextmanager
def _readable() -> Iterator[None]:
    """Turn an OSError within the context into an UnavailableError with path and reason."""
    try:
        yield
    except OSError as error:
        path, reason = error.filename or "the state root", error.strerror or error
        raise UnavailableError(
            "state_root_file_error",
            f"{path} can't be read or written: {reason}",
            hint="give this user read and write access to the state root, and try again",
        ) from error


def _verb(options: argparse.Namespace) -> Verb | None:
    if options.adopt_checkpoint is not None:
        return checkpoint.adopt(options.adopt_checkpoint or None)
    if options.from_group:
        return group_offsets.from_group
    if options.restore_group:
        return group_offsets.restore_group
    if options.forget_topic:
        return source.forget_topics(options.forget_topic)
    if options.accept_start:
        return source.accept_start
    if options.accept_gap:
        return dedup_states.accept_gap
    if options.forget_producers:
        return dedup_states.forget_producers
    if options.accept_table:
        return delta_tables.accept_table(options.accept_table)
    if options.skip_foreign:
        return foreign_records.skip_foreign
    if options.accept_ledger:
        return foreign_records.accept_ledger
    if options.rewind_to:
        return rewind.rewind(options.rewind_to, restores_tables=options.restore_tables)
    return checkpoint.set_aside if options.set_checkpoint_aside else None


def _options_to_repeat(options: argparse.Namespace) -> list[str]:
    """Return the options that the suggested next command must repeat, such as --profile."""
    found = ["--profile", options.profile] if options.profile else []
    found += ["--take-over"] if options.take_over else []
    return found + (["--why", options.why] if options.why else [])
