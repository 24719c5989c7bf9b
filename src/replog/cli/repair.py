"""`replog log repair DIR`: cut what is damaged off the logs of a stopped broker, after saying exactly what that would be."""

from __future__ import annotations

import os
import shlex

from replog.cli.context import Context
from replog.cli.copies import FS, Copy, find, size_of
from replog.cli.exits import BAD, OK
from replog.cli.intrusion import check_cuttable, check_files, check_is_no_copy, locked
from replog.cli.output import Output
from replog.cli.progress import shown_progress
from replog.errors import UsageError
from replog.log.files import OS
from replog.log.repair import Plan, carry_out, plan_of
from replog.model import PartitionId

__all__ = ["repair"]


def repair(context: Context) -> int:
    """Say what would be cut and lost: status 1 if anything is damaged. With --yes and the name of that plan: do it, and nothing else."""
    output, wanted = context.output, None if context.arguments.dry_run else context.arguments.yes
    directory, only = _place(context.arguments.folder)
    check_files(directory)
    with locked(directory, changes=wanted is not None):
        copies = [copy for place in find(directory) for copy in place.copies if only in (None, copy.identity)]
        with shown_progress(output, lambda: sum(map(size_of, copies))) as read:
            plan = plan_of(FS, directory, only, read)
        check_is_no_copy(directory, plan.directory_id)
        evidence = os.path.realpath(context.arguments.evidence or f"{directory}.repair-{plan.name}")
        if plan.is_empty:
            return _nothing(output, directory, wanted)
        if wanted not in (None, plan.name):
            raise UsageError(f"the plan is {plan.name} by now, not {wanted}: the files have changed since. Nothing was done; look again")
        cut_in_place = [f"{directory}/{cut.file}" for one in plan.logs for cut in one.cuts if cut.position]
        check_cuttable(cut_in_place)
        if evidence == directory or evidence.startswith(f"{directory}/"):
            raise UsageError(f"{evidence} is inside {directory}: evidence has to outlast it")
        if wanted is not None:
            _do(output, plan, evidence)
        _tell(output, plan, evidence, copies, is_done=wanted is not None)
    return BAD if wanted is None else OK


def _do(output: Output, plan: Plan, evidence: str) -> None:
    with shown_progress(output, lambda: sum(cut.count for one in plan.logs for cut in one.cuts)) as done:
        try:
            carry_out(OS, plan, evidence, done)
        except OSError:
            output.note(f"replog: the repair did not end; what went by now is in {evidence}. Look again: {_again(plan)}")
            raise


def _place(folder: str) -> tuple[str, PartitionId | None]:
    """The data directory that is meant, by its real path, and which of its logs. UsageError if it is none, or if it is several."""
    path = os.path.realpath(folder)
    names = FS.listdir(path) if os.path.isdir(path) else None
    if names is not None and ("meta" in names or "catalogue" in names):
        return path, None
    above = os.path.dirname(os.path.dirname(path))
    if names is not None and os.path.basename(os.path.dirname(path)) == "logs" and FS.size(f"{above}/meta") is not None:
        known = {copy.folder: copy.identity for place in find(above) for copy in place.copies}
        return above, known.get(path) or _unknown(folder)
    places = find(folder)
    if len(places) > 1 or places[0].path.rstrip("/") != folder.rstrip("/"):
        several = ", ".join(place.path for place in places)
        raise UsageError(f"{folder} holds the folders of brokers: {several}; repair one, and wait until it is in sync")
    raise UsageError(f"{folder} is the folder of a log outside of a data directory: nothing would tell a broker of what was cut")


def _unknown(folder: str) -> PartitionId:
    raise UsageError(f"{folder} is in no entry of its directory's catalogue: no broker would read it")


def _nothing(output: Output, directory: str, wanted: str | None) -> int:
    if wanted is not None:
        raise UsageError(f"there is nothing to repair in {directory}, so there is no plan {wanted}; nothing was done")
    if output.is_json:
        output.json({"directory": directory, "plan": None, "done": False, "logs": [], "files": {}})
    else:
        output.line(f"{directory}: nothing to repair")
    return OK


# ------------------------------------------------------------------------------------------------------------------- telling


def _tell(output: Output, plan: Plan, evidence: str, copies: list[Copy], *, is_done: bool) -> None:
    if output.is_json:
        output.json({"directory": plan.path, "plan": plan.name, "done": is_done, "evidence": evidence, **plan.to_plain()})
        return
    goes, stays, lost, kept = ("went", "stays", "lost", "was copied to") if is_done else ("goes", "stays", "lost", "is copied to")
    for one in plan.logs:
        output.line(f"{one.name}: {one.reason}")
        output.line(f"  {stays}  {_offsets(one.start, one.end)}")
        for cut in one.cuts:
            output.line(f"  {goes}   {plan.path}/{cut.file}, bytes {cut.position} to {cut.size} ({output.units.sized(cut.count)})")
        for index in one.indexes:
            output.line(f"  {goes}   {plan.path}/{index}, which is made anew when it is needed")
        for first, stop in one.unreadable:
            output.line(f"  {lost}   {_offsets(first, stop)}: damaged or missing")
        for first, stop in one.readable:
            output.line(f"  {lost}   {_offsets(first, stop)}: intact, and behind the damage")
        if one.is_uncounted:
            output.line(f"  {lost}   records from offset {one.end} on, if there were any: nothing tells how many")
        if one.marker:
            output.line(f"  {goes}   {plan.path}/{one.folder}/marker, damaged; a new one takes its place")
    for name, follows in plan.small.items():
        output.line(f"{plan.path}/{name}: damaged; it {goes}, and {follows}")
    if len(copies) > len(plan.logs):
        output.line(f"{len(copies) - len(plan.logs)} other logs stay as they are")
    if plan.lossy:
        output.line("at its next start the broker reports a loss of: " + ", ".join(_names(plan.lossy, copies)))
    if not plan.stopped_cleanly:
        killed = "the broker was killed, or was stopped with a copy that had failed"
        output.line(f"{killed}, or this is a copy that was taken while it ran: do not serve from such a copy")
    output.line(f"what {goes} {kept} {evidence}")
    if not is_done:
        output.line("usually better: wipe the folder, and let the broker copy everything from the others (docs/operations.md)")
        output.line(f"nothing was changed; to do just this: {_again(plan, '--yes', plan.name)}")


def _again(plan: Plan, *words: str) -> str:
    return shlex.join(["replog", "log", "repair", plan.path, *words])


def _names(lossy: tuple[PartitionId, ...], copies: list[Copy]) -> list[str]:
    names = {copy.identity: copy.name for copy in copies}
    return [names.get(identity, repr(identity)) for identity in lossy]


def _offsets(first: int, stop: int) -> str:
    if first >= stop:
        return f"nothing; the log begins at offset {first}"
    return f"offsets {first} to {stop - 1} ({stop - first} records)"
