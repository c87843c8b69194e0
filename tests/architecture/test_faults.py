"""The catalogue of faults: each has a test that exists or a reason, and the page lists it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from faults import FAULTS, page
from faults.fault import Fault
from faults.outcomes import in_report, outcome_of, recorded
from support.docs.messages import entries
from support.selection import ROOT, problem_of

# In the order of the reference: faults that are known to break pipelines of this kind.
KNOWN = """
driver killed; driver asked to stop; executor or Python worker killed; exception in user code;
shuffle files lost; speculation; non-deterministic rows; zombie task; zombie driver; two copies
started together; repeated requests; lost response; lost request; damaged response; other error
codes; broker killed; rolling restart; leader change without a restart; transaction coordinator
fails over; group coordinator fails over; controller fails over; black hole before one broker;
network cut on one side; slow broker, quota; a broker's disk is full; too few replicas in sync;
transaction times out; transactional id expires; producer id expires at a partition; epochs run out;
group offsets change; a foreign consumer in the group; target topic deleted; target topic recreated;
source topic deleted or recreated; partitions added to a target; partitions added to a source;
record too large; poison record; right revoked; credentials expire; checkpoint lost; checkpoint
rolled back; checkpoint damaged; checkpoint ahead of the ledger; crash, then a changed pipeline
file; unclean leader election; retention takes unread source records; retention takes target records
and markers; a foreign transaction stays open; a target partition is offline when markers are
written; markers are late; the clock jumps; memory, threads or files run out; the cluster changes
its transaction version; empty micro-batch; one, many and skewed partitions; seeded bugs;
the disk of the state root is full; container paused; DNS gone; TLS certificate expires in flight;
executor decommissioned; `max.message.bytes` lowered; schema registry down; S3 refuses or throttles
"""


def test_each_known_fault_has_a_row() -> None:
    known = [" ".join(name.split()) for name in KNOWN.split(";")]
    assert [name for name in known if name not in {fault.name for fault in FAULTS}] == []
    assert len(known) == 58 + 8  # clock jumps and quotas were known before
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_its_tests_and_its_message_exist(fault: Fault) -> None:
    assert [problem_of(test) for test in fault.tests if problem_of(test)] == []
    assert fault.message in {"", *(entry.code for entry in entries())}
    assert fault.tests or "not injected" in fault.reaction, "say why nothing injects it"


def test_the_page_is_current() -> None:
    command = "PYTHONPATH=tests .venv/bin/python -m faults.page > docs/faults.md"
    assert (ROOT / "docs/faults.md").read_text(encoding="utf-8") == page.page(), command


def test_only_tests_of_the_catalogue_have_outcomes() -> None:
    assert recorded().keys() <= {test for fault in FAULTS for test in fault.tests}


def test_outcomes_are_read_from_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.kafka.test_x" name="test_a[1]"/>'
        '<testcase classname="tests.kafka.test_x" name="test_b"><failure/></testcase>'
        '<testcase classname="tests.fuzz.test_y.TestZ" name="runTest"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    found = dict(in_report(report))
    assert found == {
        "tests/kafka/test_x.py::test_a": "passed",
        "tests/kafka/test_x.py::test_b": "failed",
        "tests/fuzz/test_y.py::TestZ": "skipped",
    }
    assert outcome_of(("tests/kafka/test_x.py::test_a",), found) == "passed"
    assert outcome_of(found, found) == "failed"
    assert outcome_of(("tests/kafka/test_x.py::test_c",), found) == "not run"
