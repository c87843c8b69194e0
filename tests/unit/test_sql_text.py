"""What is told of an SQL text without Spark."""

import pytest

from eos.sql_text import names, not_a_query, stripped, unstable


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  -- x\n/* INSERT INTO */ ( (select * from input) )",
        "WITH a AS (SELECT 1) SELECT * FROM a;",
        "FROM input |> WHERE a > 1",
        "VALUES (1)",
        "TABLE input",
        "SELECT 'INSERT INTO t; DROP', `delete` FROM input",
        "SELECT insert, update AS into_x FROM input",
    ],
)
def test_a_query_is_one(text):
    assert not_a_query(text) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a query"),
        ("-- only this", "got nothing but comments"),
        ("DROP TABLE x", "got a statement with `DROP`"),
        ("INSERT INTO x SELECT 1", "got a statement with `INSERT`"),
        ("WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", "got one with `INSERT`"),
        ("FROM input INSERT OVERWRITE x SELECT *", "got one with `INSERT`"),
        ("SELECT 1; SELECT 2", "expected one query, got several"),
        ("amount > 3", "got a statement with `AMOUNT`"),
    ],
)
def test_what_is_none_is_told(text, message):
    assert message in not_a_query(text)


def test_the_mark_at_the_end_is_no_part_of_it():
    assert stripped("SELECT ';' -- ;\n; -- end") == "SELECT ';' -- ;\n"
    assert stripped("SELECT ';'") == "SELECT ';'"


def test_names_are_words_and_quoted_names_outside_of_texts():
    text = "SELECT Input.a, `Big one` FROM input JOIN other -- gone\nWHERE x = 'no' /* no */"
    assert {"input", "a", "big one", "other", "x"} <= names(text)
    assert not {"gone", "no"} & names(text)


def test_functions_with_another_answer_are_found_with_their_place():
    text = "SELECT rand(), a,\n  CURRENT_TIMESTAMP AS t, Now ( ) n,\n  first(x) FROM input"
    found = [(each.function, each.line, each.column) for each in unstable(text)]
    assert found == [("rand", 1, 8), ("current_timestamp", 2, 3), ("now", 2, 27), ("first", 3, 3)]
    assert all(each.reason for each in unstable(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'rand()', \"now()\", `rand` FROM input",
        "SELECT rand, uuid, input.current_date, o.now FROM input -- rand()",
        "SELECT unix_timestamp(ts) FROM input",
        "SELECT brand(x), uuid_of(y) FROM input",
    ],
)
def test_what_only_looks_like_one_is_none(text):
    assert list(unstable(text)) == []


def test_the_time_of_day_is_one_where_no_argument_is_given():
    assert [each.function for each in unstable("SELECT unix_timestamp ( )")] == ["unix_timestamp"]
