"""Faults of topics, records, rights, checkpoints and what surrounds a pipeline."""

from __future__ import annotations

from faults.fault import Fault, kafka, pipeline, pure

FAULTS = (
    Fault(
        "target topic deleted",
        "the topic is deleted and not created again; the topic is gone at the startup",
        "nothing commits; the run stops and names the topic",
        "target_topic_gone",
        pipeline(
            "recovery_messages.py::"
            "test_a_target_made_anew_in_mid_batch_has_that_batch_or_it_is_told"
        ),
    ),
    Fault(
        "target topic recreated",
        "the topic gets another id before and during a micro-batch",
        "nothing commits to a topic that has lost a part of the micro-batch",
        "target_recreated",
        pipeline(
            "recovery_messages.py::"
            "test_a_target_made_anew_in_mid_batch_has_that_batch_or_it_is_told",
            "recovery_running.py::"
            "test_a_target_made_anew_before_a_micro_batch_is_written_has_it_whole",
        ),
    ),
    Fault(
        "source topic deleted or recreated",
        "the topic gets another id, or is gone, before a startup and during a run",
        "exit code 4; offsets of the old topic are never used for the new one",
        "recreated",
        (
            *pipeline(
                "recovery_source.py::test_a_topic_that_was_created_again_stops",
                "recovery_source.py::test_a_topic_that_is_gone_stops",
            ),
            *kafka("recover_source.py::test_a_running_pipeline_compares_topic_ids_before_offsets"),
        ),
    ),
    Fault(
        "partitions added to a target",
        "the partition count is read once per attempt; it grows between attempts",
        "an attempt keeps its count, the next one uses the new partitions",
        "",
        kafka("target_growth.py::test_the_next_attempt_writes_to_the_new_partitions"),
    ),
    Fault(
        "partitions added to a source",
        "the partition count grows before a startup and during a run",
        "new partitions are read from their beginning; if it is gone: exit code 4",
        "new_truncated",
        pipeline(
            "recovery_source.py::test_partitions_that_are_added_are_read_from_their_beginning",
            "recovery_messages.py::test_an_added_partition_that_lost_its_beginning_stops",
        ),
    ),
    Fault(
        "record too large",
        "a source record that no target's `max.message.bytes` allows",
        "nothing commits; exit code 4 with topic, partition and offset",
        "record_too_large",
        pipeline("stops.py::test_a_record_too_large_stops_with_its_coordinates_and_loses_nothing"),
    ),
    Fault(
        "`max.message.bytes` lowered",
        "a target's limit is lowered between encoding and writing",
        "one attempt fails, the next encodes smaller record batches",
        "topic_size_limit_changed",
        (
            *pipeline(
                "recovery_running.py::"
                "test_a_limit_that_is_lowered_while_a_pipeline_runs_costs_one_attempt"
            ),
            *pure(
                "limits.py::test_a_limit_that_changed_costs_an_attempt_and_the_next_one_has_the_new"
            ),
        ),
    ),
    Fault(
        "poison record",
        "records that no format, schema or rule accepts, with kills in between",
        "dead letters in the same transaction, or exit code 4, as the file says",
        "value_refused",
        pipeline(
            "dead_letters.py::"
            "test_each_record_once_in_the_target_or_among_the_dead_letters_whatever_dies"
        ),
    ),
    Fault(
        "right revoked",
        "a right on a topic, a transactional id or a group is taken away during a run",
        "the run stops with the command that grants it; no record is lost",
        "kafka_topic_authorization_failed",
        (
            *kafka(
                "security_rights.py::"
                "test_a_right_that_is_taken_away_stops_the_run_and_loses_nothing"
            ),
            *pipeline("security.py::test_a_permission_revoked_during_a_run_is_named"),
        ),
    ),
    Fault(
        "credentials expire",
        "logins that must be repeated on the connection, and tokens that end",
        "the login is repeated; an expired token ends the run with its end",
        "kafka_token_expired",
        (
            *kafka(
                "security_logins.py::"
                "test_a_login_is_repeated_on_the_same_connection_while_requests_go_on",
                "token_logins.py::test_a_login_is_repeated_on_the_same_connection_with_new_tokens",
            ),
            *pipeline("token_runs.py::test_an_expired_token_ends_the_run_with_its_end"),
        ),
    ),
    Fault(
        "TLS certificate expires in flight",
        "a running broker shows an expired certificate",
        "open connections remain; a new one is refused at once, and works with the next one",
        "broker_certificate_expired",
        kafka(
            "security_logins.py::"
            "test_a_certificate_that_expires_in_flight_ends_new_connections_alone"
        ),
    ),
    Fault(
        "checkpoint lost",
        "the folder is deleted",
        "a fresh one begins at the ledger's ends; with state: exit code 4",
        "state_lost",
        pipeline(
            "recovery_checkpoint.py::test_lost_it_goes_on_where_the_ledger_ends",
            "stateful.py::test_lost_state_stops_a_start_until_its_loss_is_accepted",
        ),
    ),
    Fault(
        "checkpoint rolled back",
        "an older copy is restored",
        "it is replaced at the ledger's ends; a committed micro-batch is skipped",
        "beyond",
        pipeline(
            "recovery_checkpoint.py::test_restored_from_a_copy_it_is_replaced_at_the_ledgers_ends",
            "recovery_checkpoint.py::test_one_micro_batch_back_and_planned_that_one_is_skipped",
        ),
    ),
    Fault(
        "checkpoint damaged",
        "files are cut in half, or empty as after a power failure",
        "exit code 4 with the file's path; an emptied plan begins a fresh one",
        "checkpoint_unreadable",
        pipeline(
            "recovery_messages.py::test_with_half_an_offsets_file_it_stops",
            "recovery_messages.py::test_with_files_that_a_power_cut_emptied_it_takes_a_fresh_one",
        ),
    ),
    Fault(
        "checkpoint ahead of the ledger",
        "plain Spark used the checkpoint, or the ledger lost records",
        "exit code 4 with both offsets",
        "hole",
        pipeline("recovery_checkpoint.py::test_read_on_by_plain_spark_it_has_a_hole"),
    ),
    Fault(
        "crash, then a changed pipeline file",
        "the file changes between a crash after EndTxn and the next run",
        "the ledger decides whether the micro-batch is skipped",
        "",
        pipeline("changed_file.py::test_nearly_everything_may_change_but_no_topic_may_be_left_out"),
    ),
    Fault(
        "retention takes unread source records",
        "records beyond the ledger's end are deleted",
        "exit code 4 with topic, partition and both offsets; nothing is skipped",
        "truncated",
        (
            *pipeline("recovery_source.py::test_what_is_deleted_beyond_the_ledgers_end_stops"),
            *kafka("range_faults.py::test_deleted_records_are_lost_records"),
        ),
    ),
    Fault(
        "retention takes target records and markers",
        "all that the first micro-batch wrote is deleted before the second",
        "nothing changes",
        "",
        kafka("other_faults.py::test_what_retention_takes_from_a_target_is_no_concern_of_a_run"),
    ),
    Fault(
        "memory, threads or files run out",
        "the process has no file descriptor left for a connection",
        "the run ends with exit code 5 or waits; the next one continues. A driver that runs out of "
        'memory ends, which is the fault "driver killed"',
        "",
        kafka("few_files.py::test_a_process_without_file_descriptors_ends_and_the_next_goes_on"),
    ),
    Fault(
        "empty micro-batch",
        "a source without new records",
        "no transaction; once a day a refresh record",
        "",
        (
            *pure("idle.py::test_an_idle_pipeline_refreshes_again_and_again_until_it_is_stopped"),
            *pipeline("stateful.py::test_a_micro_batch_without_data_is_an_attempt_like_any_other"),
        ),
    ),
    Fault(
        "one, many and skewed partitions",
        "one target partition, one thousand, and all rows in one of them",
        "one writer per partition; rejected first writes are repeated together",
        "",
        kafka("scale.py::test_a_thousand_partitions_are_one_transaction"),
    ),
    Fault(
        "seeded bugs",
        "changed places of the source",
        "the tests find each of them: mutations.md",
        "",
        ("tests/architecture/test_mutations.py::test_it_can_be_seeded_and_its_tests_exist",),
    ),
    Fault(
        "the disk of the state root is full",
        "a state root on a file system of a few MiB",
        "exit code 5 with the folder; with space, the next run continues",
        "disk_full",
        (
            *pipeline("disk_full.py::test_a_full_state_root_is_named_and_loses_nothing"),
            *pure("disk.py::test_the_folder_and_what_to_do_stand_in_place_of_a_trace"),
        ),
    ),
    Fault(
        "container paused",
        "SIGSTOP to all processes of a run, as the freezer of a container does, then SIGCONT",
        "if nobody took over, the run continues; else exit code 3",
        "newer_instance_running",
        (
            *pipeline("zombies.py::test_who_was_replaced_while_it_stood_still_ends_with_3"),
            *kafka("zombies.py::test_woken_it_is_fenced_and_the_newer_one_notices_nothing"),
        ),
    ),
    Fault(
        "DNS gone",
        "all connections break, and for a while no name is resolved",
        "repeated until names are resolved again or the deadline passes",
        "broker_unreachable",
        kafka("other_faults.py::test_a_name_server_that_is_gone_is_waited_for"),
    ),
    Fault(
        "executor decommissioned",
        "an executor leaves with its machine; `spark.stage.ignoreDecommissionFetchFailure` is set",
        "the setting is refused; a repeated writer sends nothing",
        "spark_conf_unsafe",
        (
            *pure("session.py::test_a_setting_that_lets_spark_repeat_a_writing_task_is_rejected"),
            *pipeline(
                "executors_cluster.py::test_no_two_attempts_are_mixed_whatever_dies_on_an_executor"
            ),
        ),
    ),
    Fault(
        "schema registry down",
        "no answer, errors that pass, an answer that drips in",
        "repeated until its deadline; then exit code 5",
        "registry_unavailable",
        pure(
            "registry.py::test_a_registry_that_is_not_there_is_told_in_time",
            "registry.py::test_what_passes_is_asked_again_and_what_does_not_is_told",
            "registry.py::test_an_answer_that_drips_in_is_no_answer",
        ),
    ),
    Fault(
        "S3 refuses or throttles",
        "the store of the checkpoints answers 403, each fourth request 503, or nobody is there",
        "503 is repeated by Hadoop's client; else exit code 5 with the file's path, and nothing is "
        "lost",
        "checkpoint_store_unavailable",
        pipeline(
            "checkpoint_elsewhere.py::"
            "test_a_store_that_refuses_or_is_not_there_is_told_and_loses_nothing",
            "checkpoint_elsewhere.py::test_a_store_that_throttles_is_asked_again",
        ),
    ),
)
