"""`eos stop`: end a pipeline's run by its stop marker, and wait for the run's end.

The run is found by the pipeline's lock in the state root; in a bucket, which has no locks, by the
ledger. No process is signalled.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from eos.cli.connection import connected
from eos.cli.pipeline_argument import find_chosen
from eos.config.model import PipelineFile, Profile
from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.folder import LocalFolder
from eos.inspect.snapshot import short_deadline, take_snapshot
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord
from eos.local.file_locks import is_held
from eos.plan.names import Names
from eos.startup import stop_marker
from eos.startup.lock_holder import LockHolder
from eos.startup.ownership import has_ended_cleanly

_POLL_S, _LEDGER_POLL_S = 0.1, 1.0
_WRITES_MS_MAX = 2_000  # a process that has acquired the lock writes its name within that time


def run(options: argparse.Namespace) -> int:
    pipeline, profile = find_chosen(options)
    names = Names.of(profile.names.prefix, pipeline.name, profile.state.root)
    began = time.monotonic()
    if not names.lock:
        return _stop_by_ledger(pipeline, profile, names, began, options)
    holder = _holder(Path(names.lock))
    if holder is None:
        text = f"no run holds its lock in {names.state_root}, so none was stopped"
        _print(names.pipeline, text, "not_running", None, began, options.json)
        return 1
    if not holder.run_id:
        raise _no_run_error(names, holder)
    stop_marker.write(LocalFolder(Path(names.stops)), holder.run_id)
    _await_end(names, holder, options.wait)
    text = f"the run {holder} has ended"
    _print(names.pipeline, text, "stopped", holder, began, options.json)
    return 0


def _stop_by_ledger(
    pipeline: PipelineFile,
    profile: Profile,
    names: Names,
    began: float,
    options: argparse.Namespace,
) -> int:
    folder = stop_marker.markers(names, profile.spark.conf)
    if folder is None:
        raise UsageError(
            "state_root_remote",
            f"profile {profile.name!r}: the state root {names.state_root} is neither a folder of "
            f"this machine nor a bucket of S3, so `eos stop` can't reach the run of "
            f"{names.pipeline!r}",
            hint=f"`eos status {names.pipeline}` names the run's host and process: end it there "
            "with SIGTERM",
        )
    with connected(pipeline, profile) as (planned, client):
        found = take_snapshot(planned, client)
        last = found.last
        if last is None or has_ended_cleanly(last):
            text = f"its ledger {names.ledger} shows no run, so none was stopped"
            _print(names.pipeline, text, "not_running", None, began, options.json)
            return 1
        holder = _holder_of(last)
        if not stop_marker.is_run(holder.run_id):
            raise _unnamed_error(names, holder)
        stop_marker.write(folder, holder.run_id)
        try:
            _await_clean_end(found.ledger, names, holder, options.wait)
        except UnavailableError as error:
            if error.code == "restarted_meanwhile":
                stop_marker.remove(folder, holder.run_id)
            raise
    text = f"the run {holder} has ended"
    _print(names.pipeline, text, "stopped", holder, began, options.json)
    return 0


def _holder_of(record: LedgerRecord) -> LockHolder:
    owner = record.owner
    return LockHolder(owner.get("process"), str(owner.get("host", "")), str(owner.get("run", "")))


def _await_clean_end(ledger: Ledger, names: Names, holder: LockHolder, wait_s: int) -> None:
    """Wait until the ledger has the run's clean end. Raise UnavailableError if it has not in time,
    or if another run has written a record."""
    deadline = Deadline.after_ms(wait_s * 1000)
    while (last := ledger.peek(short_deadline())) is not None:
        if _holder_of(last).run_id != holder.run_id:
            raise _restarted_error(names, holder, _holder_of(last))
        if has_ended_cleanly(last):
            return
        if deadline.has_passed:
            raise _late_error(names, holder, wait_s, f"Did it die? `eos status {names.pipeline}`")
        time.sleep(_LEDGER_POLL_S)  # nothing signals a new record


def _holder(lock: Path) -> LockHolder | None:
    """Return the process that holds the lock; None if no process does."""
    deadline = Deadline.after_ms(_WRITES_MS_MAX)
    while is_held(lock):
        found = LockHolder.read(lock)
        if found.run_id or deadline.has_passed:
            return found
        time.sleep(_POLL_S)  # nothing signals that the holder has written the file
    return None


def _await_end(names: Names, holder: LockHolder, wait_s: int) -> None:
    """Wait until the run has released the lock. Raise UnavailableError if it has not in time, or if
    another process has acquired the lock."""
    lock, deadline = Path(names.lock), Deadline.after_ms(wait_s * 1000)
    while is_held(lock):
        now = LockHolder.read(lock)
        if now.process is not None and now.run_id != holder.run_id:
            raise _restarted_error(names, holder, now)
        if deadline.has_passed:
            raise _late_error(names, holder, wait_s)
        time.sleep(_POLL_S)  # the run is no child of this process: nothing signals its end


def _restarted_error(names: Names, holder: LockHolder, now: LockHolder) -> UnavailableError:
    return UnavailableError(
        "restarted_meanwhile",
        f"{names.pipeline}: the run {holder} has ended, but another one has begun {now}",
        hint="a supervisor may have started it again: stop the pipeline there; or repeat "
        f"`eos stop {names.pipeline}`",
        pipeline=names.pipeline,
    )


def _late_error(
    names: Names, holder: LockHolder, wait_s: int, question: str = ""
) -> UnavailableError:
    return UnavailableError(
        "stop_timeout",
        f"{names.pipeline}: the run {holder} did not end within {wait_s} s; it is still "
        "asked to stop",
        hint="its micro-batch has EOS_FINISH_S seconds to commit: wait longer with --wait. "
        "If the process hangs, kill it: the next run aborts its open transaction"
        + (f". {question}" if question else ""),
        pipeline=names.pipeline,
    )


def _unnamed_error(names: Names, holder: LockHolder) -> UnavailableError:
    return UnavailableError(
        "run_without_id",
        f"{names.pipeline}: the last record of the ledger {names.ledger} was written {holder}, and "
        "names no run that can be ended",
        hint="it is of a run of an older release, or of a replay: wait for its end, or end that "
        "process with SIGTERM",
        pipeline=names.pipeline,
    )


def _no_run_error(names: Names, holder: LockHolder) -> UnavailableError:
    return UnavailableError(
        "lock_held_without_run",
        f"{names.pipeline}: the pipeline's lock is held {holder}, by no run that can be ended",
        hint="it is a recovery or a replay, or a run of an older release: wait for its end, or end "
        "that process with SIGTERM",
        pipeline=names.pipeline,
        path=names.lock,
    )


def _print(
    pipeline: str,
    text: str,
    outcome: str,
    holder: LockHolder | None,
    began: float,
    is_json: bool,
) -> None:
    if not is_json:
        print(f"{pipeline}: {text}")
        return
    found = {
        "pipeline": pipeline,
        "outcome": outcome,
        "process": holder and holder.process,
        "host": holder and holder.host,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(found))
