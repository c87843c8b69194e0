"""Does a Delta table have one commit for each committed micro-batch, with the right content?

A ledger record has the state of each table before its own transaction. So a micro-batch owes a
table its rows if its record names that table. The next record confirms the write: it names the
micro-batch as the table's last write, and has the row counts that Delta reported then, and a digest
of the commit. The commit itself is in the table's log, under the pipeline's application id and the
ledger record's offset.

An operator may let the pipeline resume with a table as it is (`eos recover --accept-table`). What
the table lacks then is reported as out of reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from eos.delta.history import MissingCommitError
from eos.finding import Finding, FindingKind, Witness
from eos.ledger.record import RowCounts, TableState
from eos.plural import plural
from eos.verify.findings import Findings, OffsetSpan
from eos.verify.history import CommittedAttempt
from eos.verify.progress import TablePoint
from eos.verify.table_commits import OwnCommit, TableCommits
from eos.verify.table_files import TableFiles
from eos.verify.table_store import TableStore

_DAMAGE_MAX = 10_000  # findings that wait for an operator's record, which may accept them
_UNCONFIRMED = "no later ledger record confirms them, and the table's log lacks them"
_COUNTLESS = "their row counts in the table's log are missing or damaged"
_TRIMMED = "their ledger records were trimmed, and the table's log lacks them"


@dataclass(slots=True)
class TableProof:
    """The proof of one table, record by record of the ledger.

    Of the `micro_batches` that owe the table rows, `commits` have a commit in its log, and
    `unchanged` of them the ledger's digest. The ledger lacks the row counts of `uncounted` commits;
    `rows` sums those that agree. The `earlier` ones wrote an earlier table of this name. `_owed` is
    the newest micro-batch, until a later record confirms its write.
    """

    store: TableStore
    id: str
    found: TableCommits
    findings: Findings
    micro_batches: int = 0
    commits: int = 0
    unchanged: int = 0
    uncounted: int = 0
    earlier: int = 0
    rows: RowCounts = field(default_factory=lambda: RowCounts(0))
    files: TableFiles = field(init=False)
    _owed: Witness | None = None
    _first: int | None = None  # the first ledger record that was seen; 0 if the proof resumed
    _last: int = -1
    _version: int = -1  # of the newest commit that a ledger record confirmed
    _is_followed: bool = False  # the last record has the table
    _damage: list[Finding] = field(default_factory=list)
    _unproven: dict[str, OffsetSpan] = field(default_factory=dict)  # ledger offsets, by reason

    def __post_init__(self) -> None:
        self.files = TableFiles(self.store, self.found.log)

    def resume(self, point: TablePoint, ledger_offset: int) -> None:
        """Resume where the last verification ended, unless the table was recreated since.

        `ledger_offset` is the last record that was verified. If a commit of this table was, newer
        commits of older records are damage.
        """
        if point.id == self.id:
            self.found.end, self._version = point.version + 1, point.version
            self._owed, self._last = point.owed, ledger_offset
            self.micro_batches = int(point.owed is not None)
            self._first = 0 if point.version >= 0 else None

    def see(self, each: CommittedAttempt) -> None:
        """Check the write of the previous micro-batch, and expect the write of this one."""
        offset = each.witness.ledger_offset
        self._first, self._last = offset if self._first is None else self._first, offset
        if each.tables is None:
            self._see_trimmed(each)
            return
        state = each.tables.get(self.store.table.name)
        self._confirm(each, state)
        if each.witness.kind == "recovery" and state is None and self._is_followed:
            self._report(accepted=each.witness)
        elif len(self._damage) >= _DAMAGE_MAX or self.files.is_full:
            self._report()
        self._is_followed = state is not None
        if state is None or not each.is_attempt:
            return
        if state.id == self.id:
            self._owed = each.witness
            self.micro_batches += 1
        else:
            self.earlier += 1
            self.found.found.pop(offset, None)  # REPLACE TABLE gives a table another id

    def see_newer(self, offsets: Iterable[int]) -> None:
        """Accept the commits of newer ledger records. The next verification checks them."""
        for offset in offsets:
            self.found.found.pop(offset, None)
            self._last = max(self._last, offset)

    def point(self) -> TablePoint:
        """Return the point at which the next verification can resume."""
        return TablePoint(self.id, self._version, self._owed)

    def finish(self, end: int) -> None:
        """Report commits before version `end` that no ledger record explains, and all the rest."""
        if self._owed is not None:
            commit = self.found.found.pop(self._owed.ledger_offset, None)
            if commit is not None:  # else it is pending, or the pipeline writes it right now
                self._check(self._owed, commit, None)
        for offset, commit in self.found.found.items():
            if commit.version < end and self._is_unknown(offset, commit):
                self._damage.append(self._foreign(offset, commit))
        self._report()
        for reason, span in self._unproven.items():
            message = (
                f"{self._place}: {plural(span.attempts, 'write')} (ledger offsets {span.first} "
            )
            message += f"to {span.last}) could not be proven: {reason}"
            self.findings.add(Finding("delta_unproven", message, kind=FindingKind.GONE))

    def as_json(self) -> dict[str, Any]:
        return {
            "micro_batches": self.micro_batches,
            "commits": self.commits,
            "unchanged": self.unchanged,
            "files": self.files.checked,
            "replaced_files": self.files.replaced,
            **self.rows._asdict(),
            "uncounted": self.uncounted,
            "earlier": self.earlier,
            "unproven": sum(each.attempts for each in self._unproven.values()),
        }

    # --- one micro-batch

    def _confirm(self, each: CommittedAttempt, state: TableState | None) -> None:
        """Check the owed write, unless the next run may still have to make it."""
        owed = self._owed
        if owed is None:
            return
        if state is None or state.id != self.id or state.at > owed.ledger_offset:
            self._settle(owed, None, is_confirmed=False)
        elif state.at == owed.ledger_offset:
            self._settle(owed, state, is_confirmed=True)
        elif each.is_attempt:
            self._settle(owed, None, is_confirmed=False)

    def _settle(self, owed: Witness, state: TableState | None, *, is_confirmed: bool) -> None:
        self._owed, offset = None, owed.ledger_offset
        commit = self.found.take(offset)
        if commit is not None:
            self._version = max(self._version, commit.version)
            self._check(owed, commit, state)
        elif self.found.may_be_unread(offset):
            which = f"commits up to version {self.found.unread} of its log"
            self._add_unproven(offset, f"{which} are deleted, damaged, or too many to keep")
        elif is_confirmed:
            message = f"{self._place}: its log has no commit of {owed}, although a later ledger "
            message += "record confirms it"
            self._damage.append(Finding("delta_lost", message, witness=owed))
        else:
            self._add_unproven(offset, _UNCONFIRMED)

    def _see_trimmed(self, each: CommittedAttempt) -> None:
        if not each.is_attempt:
            return
        offset, oldest = each.witness.ledger_offset, self.found.oldest
        commit = self.found.take(offset)
        if commit is not None:
            self._version = max(self._version, commit.version)
            self.micro_batches += 1
            self._check(each.witness, commit, None)
        elif self.found.may_be_unread(offset) or (oldest is not None and offset > oldest):
            self._add_unproven(offset, _TRIMMED)

    def _check(self, owed: Witness, commit: OwnCommit, expected: TableState | None) -> None:
        """Compare a commit with the ledger, and with its data files."""
        self.commits += 1
        if commit.repeated is not None:
            message = f"{self._place}: its versions {commit.version} and {commit.repeated} both "
            message += f"have the rows of {owed}"
            self._damage.append(Finding("delta_twice", message, witness=owed))
        try:
            count = self.files.check(commit.version, owed)
        except MissingCommitError:
            self._add_unproven(owed.ledger_offset, _COUNTLESS)
            return
        counts = None if expected is None else expected.rows
        problem = self._other_rows(commit.rows, counts, count)
        if problem:
            message = f"{self._place}: its version {commit.version} {problem}, of {owed}"
            self._damage.append(Finding("delta_rows", message, witness=owed))
        elif expected is not None and expected.sha256 not in (None, commit.sha256):
            message = f"{self._place}: its version {commit.version} was changed in the log: its "
            message += f"SHA-256 is {commit.sha256}, but {expected.sha256} in the ledger, of {owed}"
            self._damage.append(Finding("delta_changed", message, witness=owed))
        elif counts is None:
            self.uncounted += 1
        elif commit.rows is None:
            self._add_unproven(owed.ledger_offset, _COUNTLESS)
        else:
            both = zip(self.rows, counts, strict=True)
            self.rows = RowCounts(*(sum(each) for each in both))
        self.unchanged += expected is not None and expected.sha256 == commit.sha256

    def _other_rows(
        self, rows: RowCounts | None, expected: RowCounts | None, count: int | None
    ) -> str:
        """Return how a commit's row counts differ from the ledger, or from the `count` of its
        files; "" if they do not."""
        if rows is None:
            return ""
        if expected is not None and rows != expected:
            return f"has {self._text(rows)}, but the ledger has {self._text(expected)}"
        # A merge also writes rows again that it did not change.
        if not self.store.table.keys and count is not None and count != rows.inserted:
            return f"has {self._text(rows)}, but its files have {count:,}"
        return ""

    # --- findings

    def _is_unknown(self, offset: int, commit: OwnCommit) -> bool:
        """Return whether no ledger record explains a commit that no micro-batch matched.

        The first run with a table makes a commit without rows, which names an older record. Commits
        of records before the first one that was seen can't be compared.
        """
        if offset > self._last or offset < 0:
            return True
        return commit.changes_rows and self._first is not None and offset >= self._first

    def _foreign(self, offset: int, commit: OwnCommit) -> Finding:
        message = f"{self._place}: its version {commit.version} was written under the pipeline's "
        message += f"application id, with the ledger's record {offset}. No micro-batch owes the "
        return Finding("delta_foreign", message + "table these rows, or it had them before")

    def _report(self, accepted: Witness | None = None) -> None:
        """Report the damage that was found so far. `accepted` is an operator's record that accepted
        the table as it is."""
        for each in self._damage:
            message = f"{each.message}; an operator accepted the table since, by {accepted}"
            is_lost = accepted is not None and each.case == "delta_lost"
            self.findings.add(
                replace(each, message=message, kind=FindingKind.GONE) if is_lost else each
            )
        self._damage.clear()
        for each in self.files.findings():
            self.findings.add(each)

    def _add_unproven(self, offset: int, reason: str) -> None:
        span = self._unproven.setdefault(reason, OffsetSpan(offset, offset))
        span.add(offset, offset)

    @property
    def rows_text(self) -> str:
        return self._text(self.rows)

    @property
    def _place(self) -> str:
        return f"the table {self.store.table.name} ({self.store.table.path})"

    def _text(self, rows: RowCounts) -> str:
        """Return row counts for a message. Only a merge can update and delete."""
        if self.store.table.keys:
            return f"{rows.inserted:,} inserted, {rows.updated:,} updated, {rows.deleted:,} deleted"
        return plural(rows.inserted, "row")
