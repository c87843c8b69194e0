"""Which reader a run uses: declared, overridden, or chosen by the plan and the machine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, MapType, StructField, StructType
from support import doubles
from support.dedup import policy
from support.errors import raises

from eos.config.oauth import OAuth
from eos.config.security import Security
from eos.dedup.stamp_columns import StampPlace, StampRules
from eos.errors import AttemptFailedError, UsageError
from eos.formats.expressions import Format
from eos.kafka.api import TopicPartition
from eos.kafka.read_errors import old_format
from eos.micro_batch import source_reader
from eos.micro_batch.source_reader import SourceReader
from eos.plan.plan import Plan
from eos.plan.reader import (
    ARROW_NAME,
    OVERRIDE,
    SPARK_NAME,
    ReaderChoice,
    choose_reader,
    foreseen,
    require_tokens,
)
from eos.read.decode import Decode
from eos.spark import json_parsers
from eos.spark.json_parsers import json_parsing

HEADER = StampPlace("header", "h")
HEADERS = StampRules(HEADER, HEADER, HEADER, policy())
KEYS = replace(HEADERS, producer=StampPlace("key"))
SHOWN = replace(HEADERS, verdict="verdict")
NO_LIBRARY = "it was not built on this machine"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.delenv(OVERRIDE, raising=False)
    return doubles.plan()


@pytest.mark.parametrize(
    ("declared", "is_stateful", "no_library", "kind", "reason"),
    [
        ("auto", False, "", "arrow", ""),
        ("arrow", False, "", "arrow", ""),
        ("spark", False, "", "spark", "`source.reader: spark`"),
        ("auto", True, "", "spark", "keeps state"),
        ("auto", False, NO_LIBRARY, "spark", NO_LIBRARY),
        ("spark", True, NO_LIBRARY, "spark", "`source.reader: spark`"),
    ],
)
def test_the_arrow_reader_is_used_wherever_it_can(
    plan: Plan, declared: str, is_stateful: bool, no_library: str, kind: str, reason: str
):
    made = replace(plan, reader=declared, is_stateful=is_stateful)
    found = choose_reader(made, no_library)
    assert found.kind == kind
    assert reason in found.reason
    assert bool(found.reason) == (kind == "spark")


@pytest.mark.parametrize(("is_stateful", "no_library"), [(True, ""), (False, NO_LIBRARY)])
def test_arrow_is_refused_where_it_is_not_possible(plan: Plan, is_stateful: bool, no_library: str):
    made = replace(plan, reader="arrow", is_stateful=is_stateful)
    with raises("arrow_reader_unusable", UsageError) as caught:
        choose_reader(made, no_library)
    assert (no_library or "keeps state") in caught.value.message


def test_the_variable_replaces_what_the_file_declares(plan: Plan, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(OVERRIDE, "spark")
    assert choose_reader(replace(plan, reader="arrow"), "") == ReaderChoice(
        "spark", "EOS_READER=spark"
    )
    assert "EOS_READER=spark" in foreseen(plan)
    monkeypatch.setenv(OVERRIDE, "arrow")
    assert choose_reader(replace(plan, reader="spark"), "").kind == "arrow"
    with raises("arrow_reader_unusable", UsageError) as caught:
        choose_reader(plan, NO_LIBRARY)
    assert "EOS_READER=arrow is not possible" in caught.value.message
    monkeypatch.setenv(OVERRIDE, "java")
    with raises("reader_unknown", UsageError):
        choose_reader(plan, "")


OAUTH = {
    "file": OAuth(token_file="/run/token"),
    "function": OAuth(callback="a.b:c"),
    "class": OAuth(callback="a.b:c", java_class="a.B"),
    "endpoint": OAuth(token_endpoint="https://a", client_id="b", client_secret="${C}"),
}


@pytest.mark.parametrize("tokens", OAUTH)
@pytest.mark.parametrize("kind", ["arrow", "spark"])
@pytest.mark.parametrize("is_one_machine", [True, False])
def test_tokens_of_the_driver_alone_need_the_arrow_reader_on_a_cluster(
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    tokens: str,
    kind: str,
    is_one_machine: bool,
):
    monkeypatch.setenv("C", "secret")
    security = Security(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH[tokens])
    made, choice = replace(plan, security=security), ReaderChoice(kind, "a step keeps state")
    if kind == "arrow" or tokens in {"class", "endpoint"} or is_one_machine:
        require_tokens(made, choice, is_one_machine=is_one_machine)
        return
    with raises("token_source_local", UsageError) as caught:
        require_tokens(made, choice, is_one_machine=is_one_machine)
    assert "a step keeps state" in caught.value.message
    name = {"file": "token_file", "function": "callback"}[tokens]
    assert f"`kafka.security.oauth.{name}`" in caught.value.message


def test_old_record_batches_end_the_use_of_the_arrow_reader(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[Any] = []
    monkeypatch.setattr(source_reader, "slots", lambda _spark: 2)
    bus: Any = SimpleNamespace(emit=warned.append)
    nobody: Any = None
    reader = SourceReader(plan, ReaderChoice("arrow"), nobody, nobody, bus)
    assert not reader.falls_back(AttemptFailedError("spark_job_failed", "a worker died"))
    assert (reader.name, warned) == (ARROW_NAME, [])
    old = old_format(TopicPartition("orders", 1), 7)
    assert reader.falls_back(old)
    assert (reader.name, len(warned)) == (SPARK_NAME, 1)
    assert not reader.falls_back(old)  # Spark's source has the last word


@pytest.mark.parametrize("shares_spark", [False, True])
def test_pipelines_that_share_spark_have_no_barrier_stage(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, shares_spark: bool
) -> None:
    monkeypatch.setattr(source_reader, "slots", lambda _spark: 2)
    nobody: Any = None
    arrow = ReaderChoice("arrow")
    reader = SourceReader(plan, arrow, nobody, nobody, nobody, shares_spark=shares_spark)
    assert (reader.slots, reader.barrier_tasks_max) == (2, 0 if shares_spark else 2)


def test_a_plan_names_its_reader(plan: Plan):
    assert "if a step keeps state" in foreseen(plan)
    assert "`source.reader: spark`" in foreseen(replace(plan, reader="spark"))
    assert "keeps state" not in foreseen(replace(plan, reader="arrow"))


@pytest.mark.parametrize(
    ("value", "dedup", "words"),
    [
        (Format("json", "id INT", ("id",)), None, " and parses their JSON values"),
        (Format(), None, ""),
        (Format("avro", "{}", ("id",)), None, ""),
        (Format("json", "id INT", ("id",)), HEADERS, " and parses their JSON values"),
        (Format("json", "id INT", ("id",)), KEYS, "since dedup validates the records first, in"),
        (Format("json", "id INT", ("id",)), SHOWN, "since dedup validates the records first, in"),
        (Format("json", "id INT", ("id",), subject="s"), None, "since a schema id is before each"),
        (Format("json", "id INT", ("id",), is_event=True), None, "since they are change events"),
        (Format("json", "id MAP", ("id",)), None, "since the column `id` is of type map<int,int>"),
        (Format("json", "id INT", ("Id",)), None, "since Spark reads other columns"),
    ],
)
def test_json_is_parsed_by_the_arrow_reader_if_all_its_columns_are_plain(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, value: Format, dedup: Any, words: str
):
    kinds = {"id INT": IntegerType(), "id MAP": MapType(IntegerType(), IntegerType())}
    monkeypatch.setattr(
        json_parsers, "parsed", lambda ddl: StructType([StructField("id", kinds[ddl])])
    )
    conf = {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}
    spark: Any = SimpleNamespace(conf=conf)
    made = replace(plan, decode=Decode(value=value), dedup=dedup)
    parsing = json_parsing(made, spark)
    assert words in str(parsing)
    assert bool(str(parsing)) == bool(words)
    assert [each.source for each in parsing.parsers] == ["value"] * ("parses their" in words)
    if words and not parsing.parsers:
        assert str(parsing).startswith("; Spark parses the JSON values, since ")
