"""What a transform may call of Spark's: each public method of the installed release is refused, or
known to run and change nothing. No session is started."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from functools import partial

import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrameReader, GroupedData, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame, DataFrameNaFunctions, DataFrameStatFunctions
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.datasource import DataSourceRegistration
from pyspark.sql.profiler import Profile
from pyspark.sql.tvf import TableValuedFunction
from pyspark.sql.udf import UDFRegistration
from pyspark.sql.udtf import UDTFRegistration
from support.errors import raises

from eos.errors import TransformError
from eos.transform.guard import blocked, guard

# They build a plan, or tell something that is known without running one.
HARMLESS: dict[type, str] = {
    DataFrame: """
        agg alias asTable coalesce colRegex columns crossJoin cube describe distinct drop
        dropDuplicates dropDuplicatesWithinWatermark drop_duplicates dropna dtypes exceptAll
        executionInfo exists explain fillna filter groupBy groupby groupingSets hint inputFiles
        intersect intersectAll isLocal isStreaming join lateralJoin limit mapInArrow mapInPandas
        melt metadataColumn na nearestByJoin observe offset orderBy printSchema randomSplit
        repartition repartitionById repartitionByRange replace rollup sameSemantics sample sampleBy
        scalar schema select selectExpr semanticHash sort sortWithinPartitions sparkSession stat
        storageLevel subtract summary to toDF transform union unionAll unionByName unpivot where
        withColumn withColumnRenamed withColumns withColumnsRenamed withMetadata withWatermark
        zipWithIndex""",
    # `sql`: queries only. `client` is Spark Connect's.
    SparkSession: """
        Builder active builder catalog client conf createDataFrame dataSource emptyDataFrame
        getActiveSession getTags newSession profile range read sparkContext sql table tvf udf udtf
        version""",
    SparkSession.Builder: "appName enableHiveSupport getOrCreate master",
    SparkContext: """
        PACKAGE_EXTENSIONS accumulator applicationId binaryFiles binaryRecords broadcast
        defaultMinPartitions defaultParallelism dump_profiles emptyRDD getCheckpointDir getConf
        getJobTags getLocalProperty getOrCreate getSystemProperty listArchives listFiles
        parallelize pickleFile range resources show_profiles sparkUser startTime statusTracker
        textFile uiWebUrl union version wholeTextFiles""",
    # toDF looks at the first record where it gets no schema: by `first`.
    RDD: """
        aggregateByKey barrier cartesian coalesce cogroup combineByKey context distinct filter
        flatMap flatMapValues foldByKey fullOuterJoin getCheckpointFile getNumPartitions
        getResourceProfile getStorageLevel glom groupBy groupByKey groupWith id intersection
        isCheckpointed isLocallyCheckpointed join keyBy keys leftOuterJoin map mapPartitions
        mapPartitionsWithIndex mapPartitionsWithSplit mapValues name partitionBy pipe randomSplit
        reduceByKey repartition repartitionAndSortWithinPartitions rightOuterJoin sample
        sampleByKey setName subtract subtractByKey toDF toDebugString union values withResources
        zip zipWithUniqueId""",
    RuntimeConfig: "get getAll isModifiable",
    Catalog: """
        currentCatalog currentDatabase databaseExists functionExists getCreateTableString
        getDatabase getFunction getTable getTableProperties isCached listCatalogs listColumns
        listDatabases listFunctions listPartitions listTables listViews tableExists""",
    UDFRegistration: "",
    UDTFRegistration: "",
    DataSourceRegistration: "",
    # Nothing of these is refused by its name. `pivot`: with its values only.
    GroupedData: """
        agg apply applyInArrow applyInPandas applyInPandasWithState avg cogroup count max mean min
        pivot sum transformWithState transformWithStateInPandas""",
    DataFrameNaFunctions: "drop fill replace",
    # Each asks the DataFrame's method of its name.
    DataFrameStatFunctions: "approxQuantile corr cov crosstab freqItems sampleBy",
    # A schema may be looked for in the files, as of the tables that a pipeline names.
    DataFrameReader: """
        changes csv format jdbc json load option options orc parquet schema table text xml""",
    Profile: "clear dump render show",
    TableValuedFunction: """
        collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer
        python_worker_logs range sql_keywords stack variant_explode variant_explode_outer""",
}
REFUSED = [(owner, name) for owner, methods in blocked() for name in methods]
READ = {
    (owner, name)
    for owner, name in REFUSED
    if isinstance(owner.__dict__[name], property | functools.cached_property)
}


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize("owner", HARMLESS, ids=lambda owner: owner.__qualname__)
def test_each_public_method_is_refused_or_known_to_be_harmless(owner: type) -> None:
    refused, harmless = set(dict(blocked()).get(owner, ())), set(HARMLESS[owner].split())
    assert not refused & harmless
    assert refused <= public(owner)
    unknown = public(owner) - refused - harmless
    assert not unknown, f"may a transform call these of {owner.__qualname__}? {sorted(unknown)}"


def test_each_class_that_something_is_refused_of_is_looked_at() -> None:
    assert set(dict(blocked())) <= set(HARMLESS)


@pytest.fixture
def inside() -> Iterator[None]:
    with guard("tests:step"):
        yield


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(("owner", "name"), REFUSED, ids=lambda of: getattr(of, "__name__", of))
def test_what_is_refused_is_refused_before_anything_is_asked(owner: type, name: str) -> None:
    """Of an object that was never made: whatever the original does would fail otherwise."""
    made = object.__new__(owner)
    is_read = (owner, name) in READ
    ask = partial(getattr, made, name) if is_read else getattr(made, name)
    with raises("transform_call_forbidden", TransformError) as caught:
        ask()
    assert f"transform `tests:step` calls `{owner.__qualname__}.{name}`" in caught.value.message
    assert caught.value.hint


@pytest.mark.usefixtures("inside")
def test_a_pivot_names_its_values() -> None:
    grouped = object.__new__(GroupedData)
    with raises("transform_call_forbidden", TransformError) as caught:
        grouped.pivot("a")
    assert "`GroupedData.pivot`" in caught.value.message
    assert "pivot(column, [value, ...])" in caught.value.hint
    with pytest.raises(AttributeError):  # it is asked, and has no JVM
        grouped.pivot("a", ["x"])


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    "command",
    [
        "/* a */ INSERT INTO t /* b */ SELECT 1",
        "/* a **/ -- b\n SET x = 1 /**/ (SELECT 1)",
        "/**/" * 40 + "INSERT INTO t SELECT 1",  # each comment doubled the time
        "/*" + "a*" * 10_000,
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
        "FROM {rows} INSERT OVERWRITE t SELECT *",
        "WITH a AS (SELECT 1) UPDATE t SET x = 1",
    ],
)
def test_a_command_is_refused_whatever_comments_are_around_it(command: str) -> None:
    with raises("transform_call_forbidden", TransformError):
        object.__new__(SparkSession).sql(command)


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("query", ["/* a **/ /***/ -- b\n((SELECT 1", "\n/*/ a */with", "/**/FROM"])
def test_a_query_may_begin_with_comments_and_brackets(query: str) -> None:
    with pytest.raises(AttributeError):  # Spark is asked, and there is none
        object.__new__(SparkSession).sql(query)


def test_outside_of_a_transform_all_is_as_it_was() -> None:
    before = [owner.__dict__.get(name) for owner, name in REFUSED]
    with guard("tests:step"):
        assert before != [owner.__dict__.get(name) for owner, name in REFUSED]
    assert before == [owner.__dict__.get(name) for owner, name in REFUSED]
    assert "pivot_col" in inspect.signature(GroupedData.pivot).parameters


def test_an_interrupt_while_methods_are_replaced_leaves_none_replaced(monkeypatch) -> None:
    before = [owner.__dict__.get(name) for owner, name in REFUSED]

    def interrupted() -> Iterator[tuple[type, str, object]]:
        yield DataFrame, "collect", None
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("eos.transform.guard._replacements", interrupted)
        with pytest.raises(KeyboardInterrupt), guard("tests:step"):
            pass
    assert before == [owner.__dict__.get(name) for owner, name in REFUSED]
    with guard("tests:step"), raises("transform_call_forbidden", TransformError):
        object.__new__(DataFrame).collect()


def test_what_refuses_is_made_once() -> None:
    seen = []
    for _ in range(2):
        with guard("tests:step"):
            seen.append([owner.__dict__.get(name) for owner, name in REFUSED])
    assert all(one is other for one, other in zip(*seen, strict=True))


@pytest.mark.usefixtures("inside")
def test_the_builder_may_name_what_runs_already_and_nothing_else() -> None:
    named = SparkSession.builder.appName("x").master("local[1]").enableHiveSupport()
    with raises("transform_call_forbidden", TransformError) as caught:
        named.config("spark.sql.ansi.enabled", "false")
    assert caught.value.hint.startswith("frame.sparkSession is the session")
