"""Errors of replog on their way through Spark, which shows the whole stack of a Python worker before the sentence that matters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from replog.errors import ReplogError

__all__ = ["plainly"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def plainly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Errors that say all there is to say leave it without the frames they passed through. Others are left as they are."""

    @wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except ReplogError as error:
            raise error.with_traceback(None) from None

    return told
