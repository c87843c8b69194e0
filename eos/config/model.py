"""The keys of a pipeline file and of a profile. The JSON Schema is made from these models.

A pipeline file defines the processing of records and never holds an address. A profile defines the
place to run: cluster, Spark and state root. An attribute's name has its unit, such as `_ms`; the
key in the file is its alias, without the unit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from eos.config.base import (
    COLUMNS,
    PRODUCER,
    ClusterName,
    DurationMs,
    SettingText,
    Strict,
)
from eos.config.client_properties import ClientProperties
from eos.config.cross_checks import findings
from eos.config.dedup import Dedup
from eos.config.dedup_by import ByColumns
from eos.config.lookup import StaticTables
from eos.config.monitoring import MetricsProfile, Observer, OpenLineage, OpenTelemetry
from eos.config.pipeline_tests import Case
from eos.config.registry import Registry
from eos.config.rejected_records import Rules
from eos.config.security import Security
from eos.config.sink import Sink
from eos.config.source import Source
from eos.config.transform import Steps
from eos.config.trigger import Trigger, every_second
from eos.location import local_path, resolved

if TYPE_CHECKING:
    from eos.config.problems import Places

NAME_PATTERN = r"^[a-z][a-z0-9_.-]*$"
REPLAYS = ".replay."  # part of the ledger, group and transactional id names of `eos replay`


def _refuse_replay_name(name: str) -> str:
    if REPLAYS in name:
        raise ValueError(f"expected a name without `{REPLAYS}`, which is reserved for `eos replay`")
    return name


def _addresses(value: object) -> object:
    """Split a comma-separated text, so that `a:9092,b:9092` equals a list of both."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


ADDRESS_PATTERN = r"^(\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]]+):\d{1,5}$"
GROUP_PATTERN = r"^([a-zA-Z_][a-zA-Z0-9_.-]{0,63}|\d{1,10})$"
PREFIX_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$"


def _has_port(address: str) -> str:
    if not 0 < int(address.rpartition(":")[2]) < 65_536:
        raise ValueError("expected a port from 1 to 65535")
    return address


Address = Annotated[str, Field(pattern=ADDRESS_PATTERN), AfterValidator(_has_port)]


Addresses = Annotated[
    tuple[Address, ...],
    BeforeValidator(_addresses),
    Field(min_length=1),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    ),
]


def _refuse_complete(value: object) -> object:
    if value == "complete":
        raise ValueError(
            "expected `append` or `update`: `complete` would write the whole result again in "
            "each micro-batch, and consumers could not distinguish new records from old ones"
        )
    return value


# For a pipeline that keeps state: emit each group once it is complete, or on every change.
OutputMode = Annotated[Literal["append", "update"], BeforeValidator(_refuse_complete)]


def _refuse_at_least_once(value: object) -> object:
    if value == "at_least_once":
        raise ValueError(
            "expected exactly_once, got `at_least_once`, which is no longer supported. Remove the "
            "key `guarantee`: a pipeline is exactly once without it. To write at least once, use "
            "Spark's own Kafka sink "
            '(docs/pipelines.md, section "At least once")'
        )
    return value


# Every pipeline is exactly once. The key is accepted because files of earlier releases have it.
Guarantee = Annotated[Literal["exactly_once"], BeforeValidator(_refuse_at_least_once)]


def _dedup_form(value: Any) -> str | None:
    """Return the tag of the form of `dedup` (by producer or by columns) that a mapping has.

    With the tag, pydantic reports only the problems of that form.
    """
    if isinstance(value, Dedup | ByColumns):
        return PRODUCER if isinstance(value, Dedup) else COLUMNS
    if not isinstance(value, dict) or {"by", "producer"} <= value.keys():
        return None
    return COLUMNS if {"by", "within", "watermark"} & value.keys() else PRODUCER


ByProducerOrColumns = Annotated[
    Annotated[Dedup, Tag(PRODUCER)] | Annotated[ByColumns, Tag(COLUMNS)],
    Discriminator(
        _dedup_form,
        custom_error_type="form",
        custom_error_message="expected a mapping with either `producer` (sequence numbers of "
        "the upstream producer) or `by` (columns, with `within` and `watermark`), not both",
    ),
]


def _ten_minutes() -> int:
    return 600_000


class Transaction(Strict):
    timeout_ms: DurationMs = Field(default_factory=_ten_minutes, alias="timeout")


class PipelineFile(Strict):
    """A pipeline file, `pipeline.yaml`. The loader sets `path`, `folder` and `project_root`."""

    version: Literal[1]
    name: Annotated[
        str, Field(pattern=NAME_PATTERN, max_length=100), AfterValidator(_refuse_replay_name)
    ]
    source: Source
    dedup: ByProducerOrColumns | None = None
    tables: StaticTables = Field(default_factory=dict)
    expect: Rules = ()
    transform: Steps = ()
    sink: Sink
    trigger: Trigger = Field(default_factory=every_second)
    output_mode: OutputMode = "append"
    transaction: Transaction = Field(default_factory=Transaction)
    tests: tuple[Case, ...] = ()
    guarantee: Guarantee = "exactly_once"

    _path: Path = PrivateAttr(default=Path("pipeline.yaml"))
    _project_root: Path = PrivateAttr(default=Path())
    _places: Any = PrivateAttr(default=None)  # a Places

    @field_validator("dedup")
    @classmethod
    def _fits_the_source(
        cls, dedup: Dedup | ByColumns | None, info: ValidationInfo
    ) -> Dedup | ByColumns | None:
        """Check dedup here, so that a conflict is reported at the line of `dedup`."""
        if isinstance(dedup, ByColumns) and "source" in info.data:  # absent if it is invalid
            dedup.require_fits(info.data["source"])
        return dedup

    @field_validator("trigger")
    @classmethod
    def _fits_what_is_read(cls, trigger: Trigger, info: ValidationInfo) -> Trigger:
        """Check the trigger here, so that a conflict is reported at the line of `trigger`."""
        if "source" in info.data:
            trigger.require_fits(info.data["source"].kafka)
        return trigger

    @model_validator(mode="after")
    def _fits_together(self) -> PipelineFile:
        """Raise ValueError with the first conflict between parts; the loader reports all."""
        for _, text in findings(self, type(self).model_fields):
            raise ValueError(text)
        return self

    @property
    def producers(self) -> Dedup | None:
        """Return the dedup by producer sequence numbers, if the file has one."""
        return self.dedup if isinstance(self.dedup, Dedup) else None

    @property
    def distinct(self) -> ByColumns | None:
        """Return the dedup by columns of the user, if the file has one."""
        return self.dedup if isinstance(self.dedup, ByColumns) else None

    @property
    def reads_latest(self) -> bool:
        """Return whether only the schema registry has a schema of the source."""
        return self.source.reads_latest

    @property
    def has_avro(self) -> bool:
        """Return whether the pipeline reads or writes Avro.

        A local Spark (`eos test`) then needs Spark's Avro jar; a run always has it.
        """
        declared = [self.source.key, self.source.value]
        written = [each for sink in self.sink.kafka for each in (sink.key, sink.value)]
        read = [getattr(each, "avro_schema", None) for each in declared]
        return any([*read, *(getattr(each, "avro", None) for each in written)])

    @property
    def has_delta(self) -> bool:
        """Return whether the pipeline reads or writes a Delta table, so that it needs Delta's jars.

        A run of any other pipeline has none of these jars.
        """
        return bool(self.sink.delta) or any(each.delta for each in self.tables.values())

    @property
    def path(self) -> Path:
        return self._path

    @property
    def folder(self) -> Path:
        """Return the pipeline's own folder, the first place to look for its transforms."""
        return self._path.parent

    @property
    def project_root(self) -> Path:
        """Return the folder that contains `pipelines/`."""
        return self._project_root

    @property
    def places(self) -> Places:
        """Return the positions of keys and values, for problems that are found after loading."""
        found: Places | None = self._places
        assert found is not None, "only a pipeline that was loaded from a file has places"
        return found

    @property
    def is_loaded(self) -> bool:
        return self._places is not None

    def found_at(self, path: Path, project_root: Path, places: Places) -> PipelineFile:
        self._path, self._project_root, self._places = path, project_root, places
        return self


class KafkaProfile(Strict):
    """The Kafka cluster. Without `bootstrap`, an embedded broker without authentication starts.

    `client` has properties of both Kafka clients of a run, by Kafka's own names.
    """

    bootstrap: Addresses | None = None
    security: Security | None = None
    client: ClientProperties = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_of_a_cluster(self) -> KafkaProfile:
        if self.security is not None and self.bootstrap is None:
            raise ValueError(
                "expected `bootstrap` with `security`: an embedded broker has no authentication"
            )
        return self


class ClusterProfile(Strict):
    """Another Kafka cluster, from which a pipeline file may read with `source.kafka.cluster`. The
    keys are those of `kafka`."""

    bootstrap: Addresses
    security: Security | None = None
    client: ClientProperties = Field(default_factory=dict)


def _refuse_master(conf: dict[str, str]) -> dict[str, str]:
    if "spark.master" in conf:
        raise ValueError("expected no `spark.master` in `conf`: it is the key `master` of `spark`")
    return conf


class SparkProfile(Strict):
    master: str = Field(default="local[2]", min_length=1)
    conf: Annotated[dict[str, SettingText], AfterValidator(_refuse_master)] = Field(
        default_factory=dict
    )


def _state_root(text: str) -> str:
    if re.match("file:(?!/[^/]|///)", text):
        raise ValueError("expected an absolute path after `file:`, such as `file:///var/lib/eos`")
    return text


class StateProfile(Strict):
    """The place for state.

    `root` is a path, relative to the folder that contains conf/, or a URI such as
    `s3a://bucket/eos`. `group` shares that folder with a Unix group; without it, only the
    pipeline's user can read and write there.
    """

    root: Annotated[str, Field(min_length=1), AfterValidator(_state_root)] = ".eos"
    group: Annotated[str, Field(pattern=GROUP_PATTERN)] | None = None


class NamesProfile(Strict):
    """The prefix of ledger topic, group and transactional id: one namespace for each team."""

    prefix: str = Field(default="eos", pattern=PREFIX_PATTERN)


class AuditProfile(Strict):
    """The audit table.

    `transactions`: a Delta table under the state root with the outcome of every attempt.

    `behind_max`: the pipeline begins no attempt while the table lags by this number of attempts.
    """

    transactions: bool = True
    behind_max: int = Field(default=1000, ge=1)


class ProfileFile(Strict):
    """A profile, `conf/NAME.yaml`: where pipelines run."""

    kafka: KafkaProfile = Field(default_factory=KafkaProfile)
    clusters: dict[ClusterName, ClusterProfile] = Field(default_factory=dict)
    spark: SparkProfile = Field(default_factory=SparkProfile)
    state: StateProfile = Field(default_factory=StateProfile)
    names: NamesProfile = Field(default_factory=NamesProfile)
    audit: AuditProfile = Field(default_factory=AuditProfile)
    registry: Registry | None = None
    metrics: MetricsProfile = Field(default_factory=MetricsProfile)
    opentelemetry: OpenTelemetry | None = None
    openlineage: OpenLineage | None = None
    observers: tuple[Observer, ...] = ()
    deployment: str | None = Field(
        default=None, min_length=1, max_length=200, examples=["${POD_NAME}"]
    )

    _name: str = PrivateAttr(default="local")
    _local_root: Path = PrivateAttr(default=Path(".eos"))

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_observed(self) -> bool:
        """Return whether anything but the log gets the events of a run."""
        sent = self.metrics.prometheus or self.metrics.push or self.opentelemetry
        return bool(self.observers or sent or self.openlineage)

    @property
    def is_traced(self) -> bool:
        """Return whether a run sends a trace for each micro-batch."""
        return self.opentelemetry is not None and self.opentelemetry.traces

    @property
    def local_root(self) -> Path:
        """Return the folder on this machine for the embedded broker and logs.

        It is local even if the state root is remote.
        """
        return self._local_root

    def with_root(self, base: Path) -> ProfileFile:
        """Return the profile with its relative state root resolved against `base`."""
        root = resolved(self.state.root, base)
        state = self.state.model_copy(update={"root": root})
        model = self.model_copy(update={"state": state})
        model._local_root = local_path(root) or Path(resolved(".eos", base))  # noqa: SLF001 - its own
        return model

    def with_name(self, name: str) -> ProfileFile:
        self._name = name
        return self


Profile = ProfileFile
