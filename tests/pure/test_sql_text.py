"""What is told of an SQL text without Spark."""

import pytest

from eos.sql_text import (
    names,
    not_a_condition,
    not_a_query,
    stripped,
    unknown_tables,
    unstable,
)


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
        "SELECT a, update FROM input JOIN (SELECT delete FROM b) update ON a.set = update.set",
    ],
)
def test_a_query_is_one(text):
    assert not_a_query(text) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a query"),
        ("-- only this", "got only comments"),
        ("DROP TABLE x", "got a statement with `DROP`"),
        ("INSERT INTO x SELECT 1", "got a statement with `INSERT`"),
        ("WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", "got one with `INSERT`"),
        ("FROM input INSERT OVERWRITE x SELECT *", "got one with `INSERT`"),
        ("WITH a AS (SELECT 1) UPDATE c.`t` AS t SET x = 1", "got one with `UPDATE`"),
        ("WITH a AS (SELECT 1) DELETE FROM t", "got one with `DELETE`"),
        ("WITH a AS (SELECT 1) MERGE WITH SCHEMA EVOLUTION INTO t", "got one with `MERGE`"),
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


def test_a_column_goes_before_a_function_without_brackets():
    text = "current_date > '2026' AND current_date() > ts AND current_time > t"
    for columns, told in (
        (["Current_Date"], [27, 51]),
        (None, [27]),
        (["ts"], [1, 27, 51]),
    ):
        assert [each.column for each in unstable(text, columns)] == told


def test_the_time_of_day_is_one_where_no_argument_is_given():
    assert [each.function for each in unstable("SELECT unix_timestamp ( )")] == ["unix_timestamp"]


KNOWN = ("input", "Paid", "rates")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM Input JOIN `paid` USING (id) LEFT JOIN rates r ON r.id = input.id",
        "WITH a AS (SELECT 1), b (x, y) AS (SELECT * FROM a) SELECT * FROM b JOIN a",
        "SELECT extract(day FROM ts), trim(BOTH 'x' FROM w), substring(w FROM 2) FROM input",
        "SELECT trim('x' FROM w), substring('abc' FROM a) FROM input",
        "SELECT a IS DISTINCT FROM b, `from x` FROM input, LATERAL explode(l) AS t",
        "SELECT * FROM default.other JOIN `db`.`other` JOIN delta.`/a/b` JOIN range(5)",
        "SELECT * FROM (SELECT * FROM input) x JOIN (VALUES (1)) y LATERAL VIEW explode(l) e AS z",
        "SELECT * FROM VALUES (1), (2) AS t(a) -- FROM nowhere",
        "SELECT 'FROM nowhere' AS a FROM input WHERE id IN (SELECT id FROM paid)",
        "FROM input |> WHERE a > 1",
        "SELECT * FROM (input JOIN paid)",
    ],
)
def test_what_a_query_may_read_is_known(text):
    assert list(unknown_tables(text, KNOWN)) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM inputs", ["inputs"]),
        ("FROM inputs SELECT *", ["inputs"]),
        ("SELECT * FROM input WHERE id IN (SELECT id FROM piad)", ["piad"]),
        ("WITH a AS (SELECT * FROM inptu) SELECT * FROM a LEFT JOIN `rate s`", ["inptu", "rate s"]),
        ("(SELECT extract(day FROM t) FROM inputs)", ["inputs"]),
    ],
)
def test_what_no_step_and_no_table_is_called_is_told(text, names):
    assert list(unknown_tables(text, KNOWN)) == names


@pytest.mark.parametrize(
    "text",
    [
        "SELECT row_number() OVER (ORDER BY a) FROM input",
        "SELECT limit, a AS limit, `order` FROM input WHERE limit > 3",
        "SELECT * FROM input JOIN (SELECT * FROM rates ORDER BY a LIMIT 1)",
        "SELECT a > 'x' FROM input WHERE a > 5 -- and",
        "SELECT count(*), a.* FROM input a",
        "FROM input SELECT *",
        r"SELECT * FROM input WHERE path RLIKE r'C:\' AND a = r'x\\'",
        "SELECT input.* FROM input WHERE a = `or`",
    ],
)
def test_what_only_looks_unfinished_or_sorted_is_left_alone(text):
    assert not_a_query(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT * FROM input ORDER BY a", "no ORDER BY at a step's end"),
        ("SELECT * FROM input LIMIT 3;", "no LIMIT at a step's end"),
        ("SELECT * FROM input WHERE a >", "an operand after `>` in a query"),
        ("SELECT * FROM input WHERE a > 1 AND -- more", "an operand after `and`"),
        ("SELECT upper(a FROM input", "expected `)` in a query"),
        ("SELECT 'a FROM input", "a closing `'`"),
        ("SELECT * FROM", "an operand after `from`"),
    ],
)
def test_what_is_unfinished_or_sorts_a_stream_is_told(text, words):
    assert words in not_a_query(text)


def test_a_condition_ends_with_something():
    right = ("amount > 5", "amount > 'x'", "a = 1 /* > */", "`and`", "a > 1e3", "a = b::ARRAY<INT>")
    for text in right:
        assert not_a_condition(text) == ""
    for text in ("amount >", "amount > -- 5", "a AND", "a = b +"):
        assert "an operand after `" in not_a_condition(text)
