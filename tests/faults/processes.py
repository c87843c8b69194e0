"""Faults of the driver, of executors, of second instances and of requests on their way."""

from __future__ import annotations

from faults.fault import Fault, fuzz, kafka, pipeline, pure

FAULTS = (
    Fault(
        "driver killed",
        "SIGKILL to the driver, its JVM or both, before and after each of 16 steps",
        "before EndTxn: aborted by the next startup, and run again; after it: the ledger decides",
        "",
        pipeline("crashes.py::test_every_record_once_in_order_whatever_dies_when"),
    ),
    Fault(
        "driver asked to stop",
        "SIGTERM in the middle of a micro-batch",
        "the open transaction commits within 20 s, or is aborted; exit code 0",
        "",
        pipeline("stops.py::test_sigterm_ends_the_run_cleanly_and_the_next_goes_on"),
    ),
    Fault(
        "executor or Python worker killed",
        "SIGKILL to a worker or an executor's JVM, before, between and after its requests",
        "a repeated writer refuses to send; the attempt is aborted and retried under a new epoch",
        "task_attempt_repeated",
        (
            *pipeline(
                "executors_cluster.py::test_no_two_attempts_are_mixed_whatever_dies_on_an_executor"
            ),
            *pipeline(
                "executors_local.py::test_no_two_attempts_are_mixed_in_micro_batches_of_one_task"
            ),
        ),
    ),
    Fault(
        "exception in user code",
        "a transform raises once",
        "the attempt is aborted and retried; after three attempts the run ends",
        "transform_failed",
        pipeline("stops.py::test_a_transform_that_fails_once_is_redone_under_a_new_epoch"),
    ),
    Fault(
        "shuffle files lost",
        "the files of a stage are deleted between its encode and write tasks",
        "no stage is repeated inside an attempt: it is aborted and retried",
        "spark_job_failed",
        pipeline(
            "executors_cluster.py::test_no_two_attempts_are_mixed_whatever_dies_on_an_executor"
        ),
    ),
    Fault(
        "speculation",
        "settings that let Spark run a task twice; a second writer of one identity",
        "the startup refuses the settings; a second writer sends nothing",
        "spark_conf_unsafe",
        (
            *pure("session.py::test_a_setting_that_lets_spark_repeat_a_writing_task_is_rejected"),
            *kafka(
                "writer.py::test_a_second_writer_of_the_same_identity_is_refused_before_it_sends"
            ),
        ),
    ),
    Fault(
        "non-deterministic rows",
        "each evaluation gives other rows, in other numbers",
        "no transaction mixes two evaluations",
        "",
        pipeline(
            "executors_cluster.py::test_no_two_attempts_are_mixed_whatever_dies_on_an_executor"
        ),
    ),
    Fault(
        "zombie task",
        "a frozen writer wakes after its attempt was aborted, or its Produce arrives late",
        "the broker rejects its record batches: their epoch is over",
        "kafka_invalid_producer_epoch",
        kafka(
            "late_produce.py::test_of_a_writer_that_gave_up_it_is_refused",
            "late_produce.py::test_a_straggler_never_joins_the_redo",
            "writer.py::test_a_writer_of_an_ended_attempt_is_refused",
        ),
    ),
    Fault(
        "zombie driver",
        "SIGSTOP before each step, a newer instance takes over, SIGCONT",
        "the old one is fenced at its next request, exit code 3; the newer one commits on",
        "newer_instance_running",
        (
            *kafka("zombies.py::test_woken_it_is_fenced_and_the_newer_one_notices_nothing"),
            *kafka("tv1_owners.py::test_woken_it_is_fenced_and_the_newer_one_notices_nothing"),
            *pipeline("zombies.py::test_who_was_replaced_while_it_stood_still_ends_with_3"),
        ),
    ),
    Fault(
        "two copies started together",
        "two instances of one pipeline, many times, with other delays",
        "one continues to the end; none commits after another one has",
        "already_running",
        (
            *kafka("two_copies.py::test_one_goes_on_to_the_end"),
            *pipeline("stops.py::test_a_second_copy_leaves_the_first_alone_or_fences_it_by_force"),
        ),
    ),
    Fault(
        "repeated requests",
        "each request arrives once more, in this or the next transaction",
        "nothing is written twice; at worst a repeated blank init costs an attempt",
        "",
        kafka(
            "lost_answers.py::test_it_comes_through_once",
            "lost_answers.py::test_a_takeover_by_our_own_ghost_costs_an_attempt_and_no_more",
            "tv1_lost_answers.py::test_a_double_between_two_transactions_is_no_takeover",
        ),
    ),
    Fault(
        "lost response",
        "the answer to each request of a run is dropped",
        "the request is repeated; a commit without an answer is settled by the ledger",
        "commit_not_in_ledger",
        kafka(
            "lost_answers.py::test_it_comes_through_once",
            "lost_answers.py::test_a_commit_that_nobody_answers_is_settled_by_the_ledger",
            "lost_answers.py::test_what_ends_in_doubt_is_settled_by_the_next_start",
            "tv1_lost_answers.py::test_it_comes_through_once",
        ),
    ),
    Fault(
        "lost request",
        "each request of a run is dropped",
        "it is repeated",
        "",
        kafka("lost_answers.py::test_it_comes_through_once"),
    ),
    Fault(
        "damaged response",
        "half of an answer, noise, or the answer to another request",
        "the connection is closed, and the request repeated",
        "",
        kafka(
            "lost_answers.py::test_it_comes_through_once",
            "range_faults.py::test_after_a_fault_the_rest_is_read_once",
        ),
    ),
    Fault(
        "other error codes",
        "each code for each request, known or not, by a simulated and by a real broker",
        "none leads to a wrong commit; an unknown code never counts as success",
        "kafka_request_rejected",
        (
            *pure("protocol_codes.py::test_no_code_leads_to_a_wrong_commit"),
            *kafka("other_faults.py::test_any_code_for_any_request_loses_nothing"),
            *fuzz("writer.py::test_what_can_not_pass_raises_and_receipts_nothing"),
        ),
    ),
)
