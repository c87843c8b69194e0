"""The copy of a checkpoint's state into a folder of the run's own, in a store without safe renames.

A fenced instance may wake up and overwrite files in its checkpoint folder (`checkpoint_dir`). So a
run whose predecessor did not end cleanly must not use that folder. A stateless pipeline begins a
fresh checkpoint. A pipeline that keeps state copies what the ledger's last micro-batch, N, needs:

- Spark's plan and commit entries up to N. A later plan is not committed, and is planned again.
- The state up to version N+1, which the tasks of micro-batch N wrote before its transaction ended.

Nobody changes these files any more. The fenced instance was the only writer of its folder, and it
writes files of later micro-batches only. Spark's own entry of the commit N may be missing or may
arrive late: then the micro-batch is evaluated again without output. The copy happens after the
fence. If the run dies before its start record names the copy, no run writes to that folder. A later
one may copy from it if it has all plans (`checkpoint_dir`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from eos.checkpoint.files import Files, HadoopFiles
from eos.checkpoint.offset_log import Checkpoint
from eos.errors import UnavailableError
from eos.kafka.api import Identity
from eos.ledger.record import LedgerRecord
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup.checkpoint_dir import is_at_rest, own_folder
from eos.startup.local_checks import ChosenCheckpoint
from eos.startup.resume_position import Emits

_PARALLEL = 16  # requests to the store at the same time
_LOG = re.compile(r"(?:offsets|commits)/(\d+)")
_LOG_ENTRIES = 3  # Spark reads the last two entries
# A version of the state: a whole snapshot, or changes since the version before.
_VERSION = re.compile(r"(state/.*/)(\d+)(?:_[^/.]*)?\.(zip|snapshot|changelog|delta)")
_SNAPSHOTS = ("zip", "snapshot")


def with_own_state(
    planned: Plan,
    files: Files,
    chosen: ChosenCheckpoint,
    last: LedgerRecord | None,
    identity: Identity,
    bus: Emits,
) -> ChosenCheckpoint:
    """Return the checkpoint to use, after copying it if another instance may still write there.

    Call it after the fence: the ledger's last record must be final.
    """
    position = chosen.position
    root, _, name = chosen.location.rpartition("/")
    if not isinstance(files, HadoopFiles) or not planned.is_stateful or is_at_rest(planned, last):
        return chosen
    if Checkpoint(files, chosen.location).planned() is None:
        return chosen  # a fresh one
    own = own_folder(files, root, name, identity)
    query_id = Checkpoint(files, chosen.location).query_id()
    if position.batch_id < 0 or query_id != position.query_id:
        return replace(chosen, location=own)  # this query has committed nothing, so has no state
    try:
        copied = _copy(files, chosen.location, own, position.batch_id)
    except OSError as error:
        raise UnavailableError(
            "state_copy_failed",
            f"{planned.names.pipeline}: the state in {chosen.location} can't be copied to {own}: "
            f"{error}",
            hint="is the store available? Start again: nothing is lost",
            path=own,
        ) from error
    bus.emit(
        events.Warned(
            f"the last run did not end cleanly, so its state was copied: {copied} files from "
            f"{chosen.location} to {own}"
        )
    )
    return replace(chosen, location=own)


def _copy(files: HadoopFiles, old: str, new: str, batch_id: int) -> int:
    names = required(files.tree(old), batch_id)
    plans = [name for name in names if name.startswith("offsets/")]

    def copy(name: str) -> None:
        files.copy(f"{old}/{name}", f"{new}/{name}")

    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="eos-state-copy") as threads:
        list(threads.map(copy, [name for name in names if name not in plans]))
    # A folder counts as a checkpoint once it has a plan. So `eos verify` and `eos recover`, which
    # may look at any time, see no part of a copy. The newest plan is the one that they compare.
    for name in sorted(plans, key=lambda each: int(each.rpartition("/")[2]), reverse=True):
        copy(name)
    return len(names)


def required(names: Iterable[str], batch_id: int) -> list[str]:
    """Return the files of a checkpoint that the micro-batch after `batch_id` needs.

    Of each part of the state: its newest snapshot up to version `batch_id`, and all versions from
    there to the one after it. The snapshot is not newer, because Spark may evaluate `batch_id`
    again. Other files, such as RocksDB's tables, have names of their own and never change.
    """
    found, versions = [], defaultdict(list)
    for name in names:
        entry, version = _LOG.fullmatch(name), _VERSION.fullmatch(name)
        if entry is not None:
            if batch_id - _LOG_ENTRIES < int(entry[1]) <= batch_id:
                found.append(name)
        elif version is not None:
            versions[version[1]].append((int(version[2]), version[3], name))
        else:
            found.append(name)
    for each in versions.values():
        snapshots = [n for n, kind, _ in each if kind in _SNAPSHOTS and n <= batch_id]
        first = max(snapshots, default=0)
        found += [name for number, _, name in each if first <= number <= batch_id + 1]
    return sorted(found)
