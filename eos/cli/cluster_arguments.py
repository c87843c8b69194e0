"""The arguments of the commands that read or change a pipeline's state in Kafka.

These are `eos status`, `audit`, `report`, `verify`, `recover` and `replay`. Each `--help` loads
this module, so it imports nothing that takes time.
"""

from __future__ import annotations

from pathlib import Path

from eos.cli.parser import Parser, number

_STATUS = """\
Show whether a pipeline runs, its owner, its last committed micro-batch, open transactions, its lag,
and what it waits for. Read-only: a stopped embedded broker is not started.

Without a name, list all pipelines of the state root; the cluster is not queried.

  eos status
  eos status orders
  eos status orders --json | jq .lag
  eos status orders --watch 5 --json    one object a line, every 5 s

With --watch, the command shows a broker that does not respond, and continues. It ends with Ctrl-C
or SIGTERM.
"""
_STATUS_CODES = """\
Exit codes: 0 it runs, or ended cleanly; 1 it died, or a transaction hangs; 2 usage error; 5 no
response. With --watch: 130 after Ctrl-C, 143 after SIGTERM, 141 if stdout is closed.
"""
_AUDIT = """\
Show the outcomes of a pipeline's transactions from the audit table: the last transactions, the
number of retries, fenced instances, and contradictions in the table. With --live, also query the
cluster and compare it with the table, field by field.

  eos audit orders --since "2 hours"
  eos audit orders --live --json
  eos audit orders --producers --live

With --producers, show the table of producer states instead: for each target partition, what its
leader knows of the pipeline's producer.
"""
_AUDIT_CODES = "Exit codes: 0 no findings; 1 findings; 2 usage error; 5 no response."
_REPORT = """\
Write one HTML page about a pipeline's transactions: whether exactly-once was kept according to the
audit table, a timeline, records read and written, durations and lag. The page needs no network.
`eos verify` proves more, because it reads the records themselves.

  eos report orders
"""
_REPORT_CODES = (
    "Exit codes: 0 no findings; 1 findings; 2 usage error; 5 the audit table can't be read."
)
_VERIFY = """\
Prove from outside that each record was written exactly once: read ledger, targets and source from
Kafka's logs, and compare them with each other, the audit table, the group's offsets and Spark's
checkpoint. Read-only; the pipeline may be running.

  eos verify orders
  eos verify orders --json
"""
_VERIFY_CODES = """\
Exit codes: 0 no findings, and everything could be read; 1 findings, each with an example; 2 usage
error; 4 a permission is missing; 5 no response.

Examples:
  eos verify orders                       records since the last verification
  eos verify orders --from-start --json   all records that still exist
  eos verify orders --dropped FILE        list each record that dedup dropped, with its proof
  eos verify orders --allow-foreign       other producers write to the target topics
"""
_RECOVER = """\
Explain the state of a pipeline: compare ledger, checkpoint, consumer group and source, and show
what the next run would do. With one of the changes below, show it; with --yes, apply it.

  eos recover orders
  eos recover orders --set-checkpoint-aside
  eos recover orders --set-checkpoint-aside --yes --why "restored from a copy"
"""
_RECOVER_CODES = """\
Exit codes: 0 a run would resume, or the change is applied; 1 findings, or a change that is not
applied yet; 2 usage error, or refused; 4 needs an operator; 5 the pipeline runs, or no response.
"""
_REPLAY = """\
Put the dead letters of a pipeline back into their source partitions, with their original key,
value, headers and timestamp. Each is put back once, even if a replay is killed and started again.
With --dry-run, only count the waiting dead letters.

  eos replay orders --dry-run
  eos replay orders
"""
_REPLAY_CODES = """\
Exit codes: 0 done, or nothing is waiting; 2 usage error, or refused; 3 fenced by another replay; 4
needs an operator; 5 another replay runs, or no response.
"""


def declare(eos: Parser) -> None:
    _status(eos)
    _audit(eos)
    _report(eos)
    _verify(eos)
    _recover(eos)
    _replay(eos)


def _status(eos: Parser) -> None:
    summary = "Show whether a pipeline runs, its owner, position and lag."
    status = eos.add_verb("status", summary, _STATUS, _STATUS_CODES)
    status.add_pipeline(is_needed=False)
    status.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=number(1, 3600),
        const=2,
        help="repeat this until Ctrl-C, every 2 seconds if no number is given; write it after "
        "PIPELINE",
    )


def _audit(eos: Parser) -> None:
    summary = "Show the outcomes of a pipeline's transactions."
    audit = eos.add_verb("audit", summary, _AUDIT, _AUDIT_CODES)
    audit.add_pipeline()
    shown = audit.add_mutually_exclusive_group()
    shown.add_argument(
        "--since",
        metavar="TIME",
        help='begin at a time, or this long ago ("2 hours"); default: the last 1,000 transactions',
    )
    shown.add_argument(
        "--producers",
        action="store_true",
        help="show the producer states of the target partitions, as of the newest ledger record",
    )
    audit.add_flag("--live", "also query the cluster and compare it")


def _report(eos: Parser) -> None:
    summary = "Write an HTML page about a pipeline's transactions."
    report = eos.add_verb("report", summary, _REPORT, _REPORT_CODES)
    report.add_pipeline()
    report.add_argument(
        "--output", metavar="FILE", type=Path, help="path of the page (default: NAME.report.html)"
    )
    report.add_argument(
        "--since",
        metavar="TIME",
        help='begin at a time, or this long ago ("2 hours"); default: the whole table',
    )
    report.add_flag("--offline", "don't query the cluster: no lag, no comparison")


def _verify(eos: Parser) -> None:
    summary = "Prove from outside that each record was written exactly once."
    verify = eos.add_verb("verify", summary, _VERIFY, _VERIFY_CODES)
    verify.add_pipeline()
    flags = {
        "--from-start": "check all records, not only those since the last verification",
        "--allow-foreign": "report records of other producers in target topics, but not as "
        "findings",
        "--allow-out-of-reach": "report records that retention, compaction or ACLs hide, but not "
        "as findings",
    }
    for flag, about in flags.items():
        verify.add_flag(flag, about)
    verify.add_argument(
        "--dropped",
        metavar="FILE",
        type=Path,
        help="write a JSON line for each record that dedup dropped, with its proof",
    )


def _recover(eos: Parser) -> None:
    summary = "Explain why a pipeline stopped, and fix it."
    recover = eos.add_verb("recover", summary, _RECOVER, _RECOVER_CODES)
    recover.add_pipeline()
    recover.add_flag("--yes", "apply the change")
    recover.add_argument("--why", default="", metavar="TEXT", help="reason, stored in the ledger")
    recover.add_flag(
        "--take-over",
        "proceed even if another instance may be running: that one is fenced and exits",
    )
    verbs = recover.add_argument_group("changes, at most one").add_mutually_exclusive_group()
    verbs.add_argument(
        "--adopt-checkpoint",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="resume where a checkpoint ends: the newest one, or FOLDER of plain Spark",
    )
    flags = {
        "--from-group": "resume from the consumer group's offsets",
        "--restore-group": "reset the group's offsets to those of the ledger",
        "--accept-start": "resume without source records that were deleted, and note their offsets",
        "--set-checkpoint-aside": "resume where the ledger ends, with a new checkpoint",
        "--skip-foreign": "resume from the pipeline's own newest ledger record, skipping others",
        "--accept-ledger": "resume from a ledger that replication copied",
        "--accept-gap": "dedup: resume once without records of a producer that never arrived",
        "--forget-producers": "dedup: resume without the state of producers",
    }
    for flag, about in flags.items():
        verbs.add_argument(flag, action="store_true", help=about)
    verbs.add_argument(
        "--forget-topic",
        action="append",
        metavar="NAME",
        help="drop the offsets of a topic that was deleted or recreated; may be repeated",
    )
    verbs.add_argument(
        "--accept-table",
        metavar="NAME",
        help="resume with a Delta table as it is, and note what it lacks",
    )
    verbs.add_argument(
        "--rewind-to",
        metavar="OFFSET|TIME",
        help="resume from an earlier ledger record: its offset, or the last one before a time",
    )
    recover.add_flag(
        "--restore-tables",
        "with --rewind-to: also restore each Delta table to its version at that position",
    )


def _replay(eos: Parser) -> None:
    summary = "Put dead letters back into their source topics, each once."
    replay = eos.add_verb("replay", summary, _REPLAY, _REPLAY_CODES)
    replay.add_pipeline()
    replay.add_argument(
        "--rule", metavar="R", help="only dead letters of this rule, or of `malformed`"
    )
    replay.add_argument(
        "--since",
        metavar="TIME",
        help="only those rejected since a time, or this long ago; older ones are skipped for good",
    )
    replay.add_argument(
        "--limit",
        metavar="N",
        type=number(1),
        default=2**62,
        help="at most this many; the next replay continues",
    )
    flags = {
        "--now": "write the current time instead of the original one",
        "--dry-run": "count the waiting dead letters, and change nothing",
        "--take-over": "proceed even if another replay may be running: that one is fenced and "
        "exits",
    }
    for flag, about in flags.items():
        replay.add_flag(flag, about)
