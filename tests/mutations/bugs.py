"""Bugs that the tests must find: each is a changed place of eos/, with the tests that must fail.

`./tests/run mutations` seeds them one by one into a copy of the tree (`check.py`). The first ten
are those that a test of this kind of system is asked for; the others were chosen where a wrong line
would cost records without an error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """`old` occurs once in the file `path`; `new` is there instead. `tests` are pytest's ids."""

    name: str
    effect: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


_WRITER = "tests/fuzz/test_writer.py::"
_SECOND_WRITER = (
    "tests/kafka/test_writer.py::"
    "test_a_second_writer_of_the_same_identity_is_refused_before_it_sends"
)
_MICRO_BATCH = "tests/fuzz/test_micro_batch.py::"
_OWNERS = "tests/pure/test_protocol_owners.py::"
_OWNERSHIP = "tests/pure/test_ownership_check.py::"
_ATTEMPT = "tests/pure/test_protocol_attempt.py::"
_SENT = "tests/kafka/test_sent_requests.py"
_HISTORY = "tests/kafka/test_history.py::test_no_history_under_faults_has_an_anomaly"

BUGS = (
    Bug(
        "acks=1",
        "a leader that dies takes acknowledged records with it",
        "eos/kafka/requests.py",
        "        acks=-1,",
        "        acks=1,",
        (_SENT,),
    ),
    Bug(
        "a blank init for each attempt",
        "a replaced instance takes the pipeline back, and both commit in turn",
        "eos/transaction/effects.py",
        "return self._init(identity, deadline)",
        "return self._init(NO_IDENTITY, deadline)",
        (_OWNERS + "test_an_owner_that_was_replaced_is_fenced_for_good",),
    ),
    Bug(
        "mixed API versions",
        "a late record batch opens another transaction after EndTxn",
        "eos/kafka/requests.py",
        "init_producer_id=5, produce=12, txn_offset_commit=5, end_txn=5",
        "init_producer_id=5, produce=12, txn_offset_commit=5, end_txn=4",
        (_SENT,),
    ),
    Bug(
        "a fenced error is ignored",
        "a replaced instance continues beside the newer one",
        "eos/transaction/ownership_check.py",
        "if current.timeout_ms != self.coordinator.timeout_ms:",
        "if current.timeout_ms < 0:",
        (_OWNERSHIP + "test_a_takeover_is_final_although_its_owner_has_not_written_yet",),
    ),
    Bug(
        "a task is retried inside an epoch",
        "the broker drops the second version of the rows as duplicates",
        "eos/spark/tasks.py",
        "        if task_attempt > 0:\n",
        "        if task_attempt > 1_000:\n",
        (_WRITER + "test_the_second_attempt_of_a_task_is_refused_before_there_is_a_connection",),
    ),
    Bug(
        "commit before all acknowledgements",
        "records that a broker rejects later are missing in the committed micro-batch",
        "eos/transaction/writer.py",
        "        while self._unfinished():\n            self._wait()\n",
        "        self._pump()\n",
        (_WRITER + "test_what_was_added_is_in_the_log_once_whatever_passes",),
    ),
    Bug(
        "the ledger outside the transaction",
        "records of aborted attempts count, and their source records are lost",
        "eos/ledger/ledger.py",
        "self.partition, start, end, committed=True",
        "self.partition, start, end, committed=False",
        (_MICRO_BATCH + "test_each_micro_batch_is_visible_once_whatever_happens",),
    ),
    Bug(
        "receipts are not compared",
        "a micro-batch commits although records of it were not written",
        "eos/ledger/receipt.py",
        "    if acknowledged != planned:\n",
        "    if acknowledged and not planned:\n",
        ("tests/pure/test_receipt.py::test_what_does_not_agree_fails_the_attempt",),
    ),
    Bug(
        "abort after EndTxn(commit)",
        "a micro-batch that is committed is retried, and its records are there twice",
        "eos/transaction/protocol.py",
        "rows |= _end(Committing, Effect.END_COMMIT, committed, doubt, doubt)",
        "rows |= _end(Committing, Effect.END_COMMIT, committed, abort, doubt)",
        ("tests/pure/test_protocol.py::test_after_the_first_byte_of_a_commit_nothing_aborts",),
    ),
    Bug(
        "dedup's states are committed before the transaction",
        "after an aborted attempt its records count as duplicates, and are dropped",
        "eos/dedup/state_versions.py",
        "        known = self._known(version)\n",
        "        known = self._files[1] if self._files[1] else self._known(version)\n",
        ("tests/pure/test_dedup_state_versions.py::test_a_rewind_uses_the_states_of_its_version",),
    ),
    Bug(
        "no look at who wrote before",
        "a repeated stage writes other rows under the same sequences",
        "eos/transaction/writer.py",
        "if state.identity == self._identity and state.sequence_last >= 0:",
        "if state.identity == self._identity and state.sequence_last >= 1_000_000:",
        (_SECOND_WRITER,),
    ),
    Bug(
        "more record batches in flight than a leader remembers",
        "a retried record batch is not recognized as a duplicate",
        "eos/transaction/partition_queue.py",
        "IN_FLIGHT_MAX = 5 ",
        "IN_FLIGHT_MAX = 9 ",
        (
            _WRITER
            + "test_the_leader_remembers_five_so_no_sixth_is_sent_before_the_first_is_acknowledged",
        ),
    ),
    Bug(
        "the first record batch is not sent alone",
        "under TV1 a leader may accept the second one without it",
        "eos/transaction/partition_queue.py",
        "IN_FLIGHT_MAX if self._records else 1",
        "IN_FLIGHT_MAX",
        (_WRITER + "test_the_first_record_batch_of_a_partition_goes_alone",),
    ),
    Bug(
        "OUT_OF_ORDER_SEQUENCE_NUMBER is retried",
        "a writer whose sequences another process used waits until its deadline",
        "eos/kafka/outcomes.py",
        "        RETRY=(7, 19, 20, 51),\n        REFRESH=(3, 5, 6, 13, 56, 74, 100),\n"
        "        ABORT=(2, 45,",
        "        RETRY=(7, 19, 20, 45, 51),\n        REFRESH=(3, 5, 6, 13, 56, 74, 100),\n"
        "        ABORT=(2,",
        (_WRITER + "test_alone_it_raises",),
    ),
    Bug(
        "an abort that ends no epoch",
        "a task of the failed attempt writes into the next one",
        "eos/transaction/protocol.py",
        "        (Open, ProtocolEvent.ABORT): abort,\n",
        "        (Open, ProtocolEvent.ABORT): Transition(Ready),\n",
        (_ATTEMPT + "test_an_aborted_attempt_that_sent_nothing_still_ends_its_epoch",),
    ),
    Bug(
        "two attempts share an epoch",
        "a task of the failed attempt writes into the next one, with the same sequences",
        "eos/transaction/protocol.py",
        "        return after.epoch > before.epoch\n",
        "        return after.epoch >= before.epoch\n",
        ("tests/pure/test_protocol.py::test_an_identity_must_follow_the_one_before",),
    ),
    Bug(
        "records of aborted transactions are read",
        "what was aborted is in the output, and aborted ledger records count",
        "eos/kafka/records/batch_headers.py",
        "return not (batch.is_transactional and producer_id in self._hidden)",
        "return True",
        (_HISTORY,),
    ),
    Bug(
        "a source topic that was recreated is read on",
        "offsets of the old topic skip the first records of the new one",
        "eos/ledger/ranges.py",
        "        if known != now:\n",
        "        if known != now and not known:\n",
        ("tests/fuzz/test_ranges.py::test_a_topic_made_anew_is_another_topic",),
    ),
    Bug(
        "the checkpoint is believed before the ledger",
        "a micro-batch that is committed in part runs again as a whole",
        "eos/ledger/ranges.py",
        "starts = {tp: max(start, known.get(tp, start)) for tp, start in planned.items()}",
        "starts = dict(planned)",
        ("tests/fuzz/test_ranges.py::test_nothing_is_lost_or_repeated_or_it_stops",),
    ),
    Bug(
        "an unknown error code counts as success",
        "what a newer broker rejects counts as written",
        "eos/kafka/outcomes.py",
        "return _MEANINGS[api].get(code, Outcome.UNKNOWN)",
        "return _MEANINGS[api].get(code, Outcome.OK)",
        ("tests/pure/test_protocol_codes.py::test_no_code_leads_to_a_wrong_commit",),
    ),
    Bug(
        "a batch run's id is not looked up",
        "a repeated job writes its DataFrame again",
        "eos/run/batch_run.py",
        "is_new = run_id not in position.runs",
        "is_new = True",
        ("tests/pipeline/test_python_batch.py::test_a_batch_is_written_once_for_each_id",),
    ),
    Bug(
        "any micro-batch of a DataFrame may follow",
        "an older copy of the checkpoint repeats rows that are committed",
        "eos/ledger/ranges.py",
        "        _require_next(pipeline, position, step)\n",
        "",
        (
            (
                "tests/pipeline/test_python_job.py::"
                "test_writes_a_streaming_dataframe_once_and_stops_without_its_checkpoint"
            ),
        ),
    ),
    Bug(
        "a restarted application takes the pipeline back",
        "two applications in a cluster fence each other again and again",
        "eos/startup/ownership.py",
        "    _require_not_replaced(planned, last, attempt)\n",
        "",
        ("tests/pure/test_cluster_mode.py",),
    ),
)
