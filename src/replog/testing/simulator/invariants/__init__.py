"""The invariants of one run, each a small class that says when it looks and at what. All raise `Violation`.

Numbers are those of RELIABILITY.md 6.4; PROTOCOL.md 9.2 counts the same rules otherwise:

====  ===================================================================  ==================
 S    rule                                                                 I of PROTOCOL.md
====  ===================================================================  ==================
S1    what was committed never changes                                     I5
S2    whoever leads the stored epoch holds everything committed            I4
S3    so does every member of the stored ISR and ELR, on its disk if the   I3, I18
      topic asks for that
S4    the high watermark counts at least the stored ISR, and min ISR       I6, I18
S5    one process leads a leader epoch                                     I7, I13
S6    epochs never go back                                                 I13
S7    start <= HW <= LEO; one role; the leader is in its ISR               I10, I8
S8    the high watermark of a leader never goes back; nor does what        I11, I16
      leaders show to one reader
S9    equal (offset, epoch) means equal logs up to there; followers        I1, I2, I16
      believe in nothing that was not committed
S10   epoch tables are what the batches say                                I12
S11   members of the ISR never cut what is committed                       I2, I3
S12   an append is confirmed only once it is committed (flushed)           I18
S13   readers see only what is committed                                   I17, I16
S14   old epochs change nothing: on brokers, and in the store              I13, I15
S15   a stored state follows from the one before; who recovers is alone    I8, I14
      in its ISR
S16   offsets are dense                                                    I1
S17   each sequence of a producer is committed once, in order              I19
S18   no batch leaves a broker without its checksums                       I21
S19   no log is dropped unless the store says so; no file elsewhere        I21, I22
S20   queues and buffers are bounded                                       -
S21   so are messages, and what a leader asks for                          L8
S22   after a failed flush nothing is confirmed; one from before a cut     I18
      proves nothing of what came after it
S23   logs start where retention lets them, and nowhere else               I10
S24   replicas leave by reassignment once the target is in sync            I23
S25   readers see a group whole or not at all                              I17
S26   elections that may lose something are recorded, with all who were    I24, I25
      asked; unclean ones are allowed, and nobody complete could lead
====  ===================================================================  ==================

Of the rest of PROTOCOL.md's list, I9 (who may be in an ISR) and I20 (producer tables) are held by S2, S3 and S17 as far
as they have effects. Where a run allows elections that may lose something, "committed" is what such an election has left, once the store
says that it may have lost something (`forks`); S15 and S26 say when there may be one.
"""

from __future__ import annotations

from replog.testing.simulator.invariants.appends import AnsweredIsStored, NothingIsInvented
from replog.testing.simulator.invariants.base import Asked, Claim, Copies, Headers, Invariant
from replog.testing.simulator.invariants.commits import (
    CandidatesAreComplete,
    CandidatesAreDurable,
    CandidatesAreNeverCut,
    CommittedNeverChanges,
    EnoughAreCounted,
    LeadersAreComplete,
    NothingTwice,
)
from replog.testing.simulator.invariants.copies import (
    EpochTablesFollow,
    FollowersBelieveCommitted,
    LogsAreDense,
    LogsMatch,
    OffsetsAreInOrder,
)
from replog.testing.simulator.invariants.epochs import EpochsNeverGoBack, LeadersNeverGoBack, OldMessagesChangeNothing, OneLeaderPerEpoch
from replog.testing.simulator.invariants.groups import DoneIsCommitted, GroupsAreWhole, VersionsGrow
from replog.testing.simulator.invariants.readers import AcknowledgedIsCommitted, BytesAreIntact, ReadersNeverGoBack, ReadersSeeCommitted
from replog.testing.simulator.invariants.starts import StartsAreEarned
from replog.testing.simulator.invariants.storage import FailedDisksConfirmNothing, FlushesProveWhatTheyWrote, NothingIsDropped
from replog.testing.simulator.invariants.store import LossesAreRecorded, MovesAreComplete, OnlyTheSeatWrites, StatesAreSound
from replog.testing.simulator.invariants.storms import BuffersAreBounded, MessagesAreBounded, ProposalsAreBounded

__all__ = [
    "INVARIANTS",
    "AcknowledgedIsCommitted",
    "AnsweredIsStored",
    "Asked",
    "BuffersAreBounded",
    "BytesAreIntact",
    "CandidatesAreComplete",
    "CandidatesAreDurable",
    "CandidatesAreNeverCut",
    "Claim",
    "CommittedNeverChanges",
    "Copies",
    "DoneIsCommitted",
    "EnoughAreCounted",
    "EpochTablesFollow",
    "EpochsNeverGoBack",
    "FailedDisksConfirmNothing",
    "FlushesProveWhatTheyWrote",
    "FollowersBelieveCommitted",
    "GroupsAreWhole",
    "Headers",
    "Invariant",
    "LeadersAreComplete",
    "LeadersNeverGoBack",
    "LogsAreDense",
    "LogsMatch",
    "LossesAreRecorded",
    "MessagesAreBounded",
    "MovesAreComplete",
    "NothingIsDropped",
    "NothingIsInvented",
    "NothingTwice",
    "OffsetsAreInOrder",
    "OldMessagesChangeNothing",
    "OneLeaderPerEpoch",
    "OnlyTheSeatWrites",
    "ProposalsAreBounded",
    "ReadersNeverGoBack",
    "ReadersSeeCommitted",
    "StartsAreEarned",
    "StatesAreSound",
    "VersionsGrow",
]

INVARIANTS: tuple[type[Invariant], ...] = (
    LogsAreDense,
    EpochTablesFollow,
    LogsMatch,
    OffsetsAreInOrder,
    StartsAreEarned,
    EpochsNeverGoBack,
    OneLeaderPerEpoch,
    LeadersAreComplete,
    LeadersNeverGoBack,
    EnoughAreCounted,
    CommittedNeverChanges,
    NothingTwice,
    VersionsGrow,
    NothingIsInvented,
    AnsweredIsStored,
    GroupsAreWhole,
    DoneIsCommitted,
    FollowersBelieveCommitted,
    CandidatesAreNeverCut,
    CandidatesAreComplete,
    CandidatesAreDurable,
    AcknowledgedIsCommitted,
    ReadersSeeCommitted,
    ReadersNeverGoBack,
    BytesAreIntact,
    StatesAreSound,
    LossesAreRecorded,
    MovesAreComplete,
    OnlyTheSeatWrites,
    OldMessagesChangeNothing,
    NothingIsDropped,
    BuffersAreBounded,
    MessagesAreBounded,
    ProposalsAreBounded,
    FailedDisksConfirmNothing,
    FlushesProveWhatTheyWrote,
)
"""In the order they look: S1 extends the ledger, and whatever compares with it comes after."""
