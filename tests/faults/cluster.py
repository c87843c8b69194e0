"""Faults of brokers, of the network, and of Kafka's clocks."""

from __future__ import annotations

from faults.fault import Fault, fuzz, kafka, pipeline, pure

FAULTS = (
    Fault(
        "broker killed",
        "SIGKILL to one of three brokers at each point of a transaction",
        "the pipelines continue without it, in the same attempt",
        "",
        (
            *kafka(
                "three_kills.py::test_a_node_that_dies_costs_no_record_wherever_a_transaction_is"
            ),
            *pipeline("three_brokers.py::test_a_kill_and_restarts_cost_no_record"),
        ),
    ),
    Fault(
        "rolling restart",
        "each of three brokers stops and starts, one after another",
        "no attempt fails",
        "",
        kafka("three_kills.py::test_pipelines_go_on_through"),
    ),
    Fault(
        "leader change without a restart",
        "all partitions of source, target, ledger and Kafka's own topics get other leaders",
        "leaders are looked up again, record batches keep bytes and sequence",
        "",
        kafka(
            "three_kills.py::test_pipelines_go_on_through",
            "range_leaders.py::test_leaders_that_are_replaced_meanwhile",
        ),
    ),
    Fault(
        "transaction coordinator fails over",
        "the coordinator's broker is killed at each step",
        "another one answers; a decided commit stays decided",
        "",
        kafka(
            "three_kills.py::test_a_node_that_dies_costs_no_record_wherever_a_transaction_is",
            "coordinator_forgets.py::test_it_is_no_takeover",
        ),
    ),
    Fault(
        "group coordinator fails over",
        "the same broker coordinates the group",
        "another one answers",
        "",
        kafka("three_kills.py::test_a_node_that_dies_costs_no_record_wherever_a_transaction_is"),
    ),
    Fault(
        "controller fails over",
        "one of the three killed brokers is the active controller",
        "the pipelines continue",
        "",
        kafka("three_kills.py::test_a_node_that_dies_costs_no_record_wherever_a_transaction_is"),
    ),
    Fault(
        "black hole before one broker",
        "a proxy swallows all requests to a leader or coordinator",
        "requests time out, and are repeated until it is back or the deadline passes",
        "no_response_by_deadline",
        kafka(
            "three_outages.py::test_a_black_hole_before_one_node",
            "three_outages.py::test_a_node_that_answers_nobody",
        ),
    ),
    Fault(
        "network cut on one side",
        "the driver is cut off while its writers are not, and the other way round",
        "nothing commits; the run ends with exit code 5, and the next one continues",
        "request_unanswered",
        kafka(
            "other_faults.py::"
            "test_a_driver_that_is_cut_off_from_its_writers_brokers_commits_nothing",
            "other_faults.py::"
            "test_writers_that_are_cut_off_end_the_run_and_the_driver_aborts_the_attempt",
        ),
    ),
    Fault(
        "slow broker, quota",
        "quotas of the broker for a writer and for a reader",
        "requests wait as long as the broker asks; no attempt fails",
        "",
        kafka(
            "throttled.py::test_a_throttled_writer_loses_and_repeats_nothing",
            "three_outages.py::test_quotas_slow_a_pipeline_down_and_no_more",
            "range_limits.py::test_a_throttled_reader_sends_nothing_before_its_time",
        ),
    ),
    Fault(
        "a broker's disk is full",
        "KAFKA_STORAGE_ERROR for a record batch, by the simulated broker",
        "it is repeated until another leader takes over or the deadline passes. A full disk is not "
        'injected: Kafka ends a broker whose only log folder fails, which is the fault "broker '
        'killed"',
        "kafka_kafka_storage_error",
        pure("protocol_codes.py::test_no_code_leads_to_a_wrong_commit"),
    ),
    Fault(
        "too few replicas in sync",
        "`min.insync.replicas` is above the number of running brokers; two of three are down",
        "repeated until they are back; a run that can't wait ends with exit code 5",
        "kafka_not_enough_replicas",
        kafka(
            "three_outages.py::test_too_few_replicas_in_sync",
            "three_outages.py::test_two_nodes_of_three_are_down",
        ),
    ),
    Fault(
        "transaction times out",
        "the broker aborts the transaction at each step, and while a request is on its way",
        "never reported as committed; retried once; if it can never fit, the run stops with advice",
        "attempt_given_up",
        kafka(
            "timeouts.py::test_what_is_outlived_is_redone",
            "timeouts.py::test_what_arrives_too_late_is_redone",
            "timeouts.py::test_what_never_fits_stops_with_advice_and_is_not_lost",
        ),
    ),
    Fault(
        "transactional id expires",
        "short expiration, an idle pipeline",
        "the next startup gets another producer id; an older copy does not come back",
        "transactional_id_expired",
        kafka(
            "expiry.py::test_an_expired_transactional_id_is_taken_anew",
            "expiry.py::test_an_older_copy_whose_id_expired_does_not_come_back",
        ),
    ),
    Fault(
        "producer id expires at a partition",
        "short expiration, an idle target",
        "the next epoch begins at sequence 0",
        "",
        kafka("expiry.py::test_an_expired_producer_id_is_used_again"),
    ),
    Fault(
        "epochs run out",
        "33,000 attempts, and lost answers around the rotation of the producer id",
        "attempts continue with the new producer id; the old one is over",
        "",
        kafka(
            "rotation.py::test_33_000_attempts_each_have_an_identity_of_their_own",
            "rotation.py::"
            "test_micro_batches_go_on_across_the_rotation_and_the_old_identity_is_over",
            "rotation.py::test_a_rotation_in_doubt_is_settled_by_the_ledger",
        ),
    ),
    Fault(
        "group offsets change",
        "they expire, are deleted, are reset, or another client commits inside the transaction",
        "the ledger decides; a warning, and the next commit corrects them; ahead: exit code 4",
        "group_ahead",
        kafka(
            "group_moved.py::test_a_group_that_is_deleted_while_the_transaction_is_open",
            "group_moved.py::test_a_group_that_is_reset_while_the_transaction_is_open",
            "expiry.py::test_expired_group_offsets_are_told_and_put_back_by_the_next_commit",
        ),
    ),
    Fault(
        "a foreign consumer in the group",
        "a consumer joins the group, by both group protocols",
        "a startup refuses; a run continues if it can, else it stops and names the group",
        "group_has_members",
        kafka(
            "group_moved.py::test_a_member_stops_a_start_which_names_the_group_and_the_way_out",
            "group_moved.py::test_a_member_that_joins_under_a_run_takes_nothing_from_it",
        ),
    ),
    Fault(
        "unclean leader election",
        "a ledger and a target that lack records which were acknowledged",
        "the startup, the next commit and `eos verify` find the loss",
        "ledger_cut",
        (
            *kafka(
                "ledger_stale.py::test_a_ledger_that_lost_what_it_acknowledged_stops_the_pipeline",
                "verify.py::test_a_target_that_keeps_everything_and_was_cut_all_the_same",
            ),
        ),
    ),
    Fault(
        "a foreign transaction stays open",
        "another producer leaves a transaction open on the source or the ledger",
        "the run waits, then names the producer; it aborts nothing of others",
        "ledger_open",
        kafka(
            "ledger.py::test_an_open_transaction_of_somebody_else_is_waited_for_and_then_named",
            "range_faults.py::test_an_open_transaction_is_named_at_the_deadline",
        ),
    ),
    Fault(
        "a target partition is offline when markers are written",
        "two of three brokers die after EndTxn was sent; markers that don't arrive, simulated",
        "the commit stays; the next micro-batch waits, and names the partitions",
        "kafka_concurrent_transactions",
        (
            *kafka("three_outages.py::test_two_nodes_of_three_are_down"),
            *pure("protocol_owners.py::test_an_unfinished_transaction_is_waited_for_and_named"),
        ),
    ),
    Fault(
        "markers are late",
        "a proxy between brokers holds WriteTxnMarkers",
        "the next record batch is repeated until they are written",
        "",
        kafka(
            "lost_answers.py::test_markers_that_are_late_are_waited_for",
            "lost_answers.py::test_what_brokers_ask_one_another_is_asked_again",
        ),
    ),
    Fault(
        "the clock jumps",
        "the driver's clock jumps back by a day, and forward by less and by more than an hour",
        "deadlines use the monotonic clock. Brokers reject records that are an hour ahead: exit "
        "code 4, and the next run with a right clock continues",
        "kafka_invalid_timestamp",
        kafka(
            "other_faults.py::test_a_clock_that_jumps_changes_nothing",
            "other_faults.py::test_a_clock_that_is_a_day_ahead_is_refused_by_the_broker",
        ),
    ),
    Fault(
        "the cluster changes its transaction version",
        "`transaction.version` is raised and lowered while a pipeline runs",
        "a run keeps its profile; the next one has the new",
        "transaction_version_lowered",
        kafka(
            "profile.py::"
            "test_a_run_keeps_its_profile_when_the_cluster_changes_and_the_next_one_has_the_new",
            "profile.py::test_a_cluster_that_was_lowered_meanwhile_costs_another_start",
        ),
    ),
    Fault(
        "any order of events",
        "two owners on a simulated broker that loses, delays and repeats requests",
        "atomic, once, fenced and honest, in each generated history",
        "",
        fuzz(
            "transaction_machine.py::TestOwners",
            "micro_batch.py::test_each_micro_batch_is_visible_once_whatever_happens",
        ),
    ),
)
