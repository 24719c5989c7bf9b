"""What a client asks for, other than appending: each operation is one request at a time, repeated until it is answered.

An operation knows where its request goes, what it says, and what an answer means. When to send, when to repeat and when to
give up is the core's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from replog.client.refusals import denied
from replog.client.unreached import whom_not_reached
from replog.client.view import Place, View
from replog.config import WISH_ITEMS_MAX
from replog.errors import Code, Rejected, ReplogError, TimedOut, Unavailable, error_name, rejection
from replog.messages import Admin, AdminAnswer
from replog.model import Address, PartitionId
from replog.security.roles import DESCRIBE, wish

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["AT_EARLIEST", "AT_LATEST", "AdminOp", "MetadataOp", "Operation", "PartitionOp", "recreated", "unknown_outcome"]

AT_EARLIEST = -2
AT_LATEST = -1

RETRIED = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NOT_CONTROLLER,
        Code.STORAGE_ERROR,
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.LOG_DIRECTORY_FULL,
        Code.OFFSET_NOT_AVAILABLE,
        Code.QUOTA_EXCEEDED,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.OPERATION_NOT_ATTEMPTED,
    }
)
"""Refusals that another try, perhaps at another broker, can overcome."""
SAME_PLACE = frozenset(
    {
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.LOG_DIRECTORY_FULL,
        Code.OFFSET_NOT_AVAILABLE,
        Code.QUOTA_EXCEEDED,
    }
)
"""... and those of them that do not put the routing in doubt."""


class Operation:
    """Something asked of the cluster, until it is `done`: with a `result`, or with an `error`."""

    is_read = False
    """Whether its answer brings records, over a connection of their own."""
    changes = False
    """Whether it changes something. Then the refusal of a repetition does not say that nothing was done."""
    in_doubt_after: ClassVar[frozenset[int]] = frozenset()
    """Refusals that another try can overcome, after which it may have been carried out all the same."""
    certain: frozenset[int] = frozenset()
    """Refusals that say that nothing was changed, also by an earlier request."""

    def __init__(self, what: str, deadline_ms: int) -> None:
        self.what = what
        """What is asked for, with its article, for messages: "an offset"."""
        self.deadline_ms = deadline_ms
        self.started_ms = -1
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.request = -1
        self.address: Address = None
        """Who has the request; None: nobody."""
        self.sent_ms = -1
        self.patience_at = 0
        self.retry_at = 0
        self.failures = 0
        self.last_code = 0
        self.uncertain = False
        """Whether a request went unanswered, or was answered with doubt: it may have been carried out."""
        self.is_unreached = False
        """Whether the request was not sent, since nobody was reached."""
        self.floor = -1
        """Number of the Metadata whose answer decides whether the topic exists; -1: it is not in doubt."""
        self.timer_ms: int | None = None

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """Where to send; None: nowhere now (wait for news), or the operation has just failed."""
        raise NotImplementedError

    def message(self, core: ClientCore) -> Any:
        """The request, numbered `self.request`."""
        raise NotImplementedError

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """Take an answer. Returns the code to treat as a refusal; 0 when the operation is done or goes on by itself."""
        raise NotImplementedError

    def has_moved(self, view: View) -> bool:
        """Whether somebody else is to be asked, as the view has it, than whoever has the request."""
        return False

    def wait_ms(self) -> int:
        """How long the broker may take on purpose, in addition to the request timeout."""
        return 0

    def lies_with(self, core: ClientCore) -> str:
        """Whom the operation waits for, for messages."""
        return f"broker {self.address}" if self.address is not None else "any broker"

    def waiting_for(self, core: ClientCore) -> str:
        """What the operation waits for, for TimedOut messages."""
        return f"an answer of {self.lies_with(core)} to {self.what}"

    def finish(self, result: Any) -> None:
        """Done, with a result."""
        self.done, self.result = True, result

    def fail(self, error: BaseException) -> None:
        """Done, with an error."""
        if not self.done:
            self.done, self.error = True, error

    def heard(self, code: int) -> None:
        """A refusal, final or not."""
        self.last_code = code
        self.uncertain |= code in self.in_doubt_after

    def refuse(self, error: ReplogError) -> None:
        """Done: a refusal that is final. Unavailable where an earlier request may have changed something."""
        in_doubt = self.changes and self.uncertain and not (isinstance(error, Rejected) and error.code in self.certain)
        self.fail(unknown_outcome(self.what, error) if in_doubt else error)

    def expire(self, core: ClientCore, now_ms: int) -> None:
        """Out of time: say what was waited for, and what the last answer was."""
        waited = f"waited {(now_ms - self.started_ms) / 1000:g} s for {self.waiting_for(core)}"
        last = f"; the last answer was {self.last_answer()}" if self.last_code else ""
        self.fail(TimedOut(waited + last + whom_not_reached(core.unreached)))

    def last_answer(self) -> str:
        """The last refusal, for TimedOut messages."""
        return error_name(self.last_code)

    def refused(self, code: int) -> ReplogError:
        """The error for a refusal that is final."""
        return rejection(code)


def unknown_outcome(what: str, refusal: ReplogError) -> Unavailable:
    """The error of a change that may have been carried out before its repetition was refused."""
    text = f"{what}: {type(refusal).__name__} was the answer to a repetition ({refusal}); whether it was carried out before is unknown"
    error = Unavailable(text)
    error.__cause__ = refusal
    return error


class PartitionOp(Operation):
    """An operation that the leader of one partition answers.

    `expected` is the log that the caller means: if another one has taken its name, the operation fails with UnknownTopicId.
    """

    action: str = DESCRIBE
    """What it does with the topic, as an authorizer calls it."""

    def __init__(self, what: str, topic: str, partition: int, deadline_ms: int, expected: PartitionId | None = None) -> None:
        super().__init__(what, deadline_ms)
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.place: Place | None = None
        """As of the last request."""

    @property
    def is_new(self) -> bool:
        """Whether any log of this name will do: then a topic that does not exist may be made."""
        return self.expected is None

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The leader."""
        self.place = core.locate(self, self.topic, self.partition, now_ms)
        if self.place is None:
            return None
        if self.expected is not None and self.place.identity != self.expected:
            self.refuse(recreated(self.topic, self.partition))
            return None
        return self.place.leader

    def has_moved(self, view: View) -> bool:
        """Another broker leads."""
        return self.place is not None and view.has_moved(self.topic, self.partition, self.place)

    def refuse_all(self, error: ReplogError) -> None:
        """The partition does not exist; it may have when an earlier request came."""
        self.refuse(error)

    def lies_with(self, core: ClientCore) -> str:
        """The leader, if there is one."""
        place = core.view.place(self.topic, self.partition)
        name = f"{self.topic}-{self.partition}"
        if place is None:
            return f"a leader of {name}, which no broker knows"
        return f"broker {place.leader}, leader of {name}" if place.leader is not None else f"a leader of {name}"

    def waiting_for(self, core: ClientCore) -> str:
        """An answer of the leader; that there is one, if there is none."""
        place = core.view.place(self.topic, self.partition)
        if place is None or place.leader is not None:
            return super().waiting_for(core)
        return f"{self.topic}-{self.partition} to have a leader, to answer {self.what}"

    def refused(self, code: int) -> ReplogError:
        """The error, naming the partition and the broker; and what is not allowed, if that is it."""
        broker = self.place.leader if self.place is not None else None
        return denied(rejection(code, topic=self.topic, partition=self.partition, broker=broker), self.action)


def recreated(topic: str, partition: int) -> ReplogError:
    """The error of a reader whose log is gone, while another one has its name: offsets of the one mean nothing in the other (KIP-516)."""
    text = f"{topic}-{partition}: the topic was deleted and created again, or the partition removed and added again; "
    text += "a position in the old one means nothing in the new one"
    return rejection(Code.UNKNOWN_TOPIC_ID, text, topic=topic, partition=partition)


class MetadataOp(Operation):
    """Wait for an answer to a Metadata asked after the operation began, and until the view is as wanted. Result: the View."""

    def __init__(
        self, deadline_ms: int, *, until: Callable[[View], bool] | None = None, what: str = "a question about the cluster"
    ) -> None:
        super().__init__(what, deadline_ms)
        self.until = until
        self.asked = -1

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """Nobody: the core's own Metadata request serves every operation that waits for one."""
        if self.asked < 0 or core.answered_metadata >= self.asked:
            if self.asked >= 0 and (self.until is None or self.until(core.view)):
                self.finish(core.view)
                return None
            if self.asked >= 0:
                self.failures += 1
                self.retry_at = now_ms + core.backoff_ms(self.failures)
            self.asked = core.refresh(now_ms)
        return None

    def lies_with(self, core: ClientCore) -> str:
        """Whoever is asked for metadata now."""
        asked = core.metadata_address
        return f"broker {asked}" if asked is not None else "any broker"


_ITEMS_MAX: Final = WISH_ITEMS_MAX - 100
"""The rest is for the message around it."""


def _items(value: Any) -> int:
    """Of lists and dicts, all of them together."""
    if not isinstance(value, dict | list | tuple):
        return 0
    return len(value) + sum(map(_items, value.values() if isinstance(value, dict) else value))


class AdminOp(Operation):
    """A wish, which any broker forwards to the controller. Result: the answer's dictionary.

    A wish that went unanswered may have been granted: when it is repeated, the error in `granted_code` (it exists already, it is gone
    already) then counts as success; another one leaves the outcome unknown, unless it was a question.
    """

    in_doubt_after = frozenset({Code.REQUEST_TIMED_OUT})
    """Whoever passed it on does not know what became of it."""

    def __init__(self, verb: str, arguments: dict[str, Any], deadline_ms: int, *, granted_code: int = 0) -> None:
        super().__init__(f"the request {verb!r}", deadline_ms)
        items = _items(arguments)
        if items > _ITEMS_MAX:
            raise rejection(Code.MESSAGE_TOO_LARGE, f"the request {verb!r} has {items} items; allowed are {_ITEMS_MAX}")
        self.verb = verb
        self.arguments = arguments
        self.granted_code = granted_code
        self.changes = wish(verb).changes and not arguments.get("validate_only")
        self.controller_epoch = -1
        """As of the last request."""
        self.presumed = False
        """It counts as granted by `granted_code` only."""

    def has_moved(self, view: View) -> bool:
        """Another controller: what the one before was asked, directly or through another broker, nobody may answer any more."""
        return view.controller_epoch > self.controller_epoch >= 0

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The controller's broker if it is known, else any."""
        self.controller_epoch = core.view.controller_epoch
        return core.any_broker(now_ms, core.view.controller if self.failures % 2 == 0 else -1)

    def message(self, core: ClientCore) -> Admin:
        """The wish."""
        return Admin(self.request, self.verb, self.arguments)

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """Granted, refused for good, or to be asked again."""
        if not isinstance(answer, AdminAnswer):
            return Code.UNKNOWN_SERVER_ERROR
        if answer.error == Code.NONE or (self.uncertain and answer.error == self.granted_code):
            self.presumed = answer.error != Code.NONE
            self.finish(answer.result)
        elif answer.error in (Code.NOT_CONTROLLER, Code.LEADER_NOT_AVAILABLE, Code.REQUEST_TIMED_OUT):
            return answer.error
        else:
            self.refuse(rejection(answer.error, answer.message))
        return Code.NONE
