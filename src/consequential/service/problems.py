"""Problems: errors that a client can tell apart by a stable code, after RFC 9457."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it so
    """Why a request is refused; nothing of it is stored.

    Attributes
    ----------
    code
        A word that stays the same from version to version, for programs.
    status
        The HTTP status.
    detail
        What was wrong, where, and what to do, for people.
    extra
        Further members of the answer, such as the index of the bad item of a batch.

    Examples
    --------
    >>> from consequential.service.problems import Problem
    >>> Problem("out_of_bounds", 422, "income is -3: at least 0").document()["title"]
    'Unprocessable Content'
    """

    def __init__(self, code: str, status: int, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.code, self.status, self.detail, self.extra = code, status, detail, extra

    def __reduce__(self) -> tuple[Any, ...]:  # it may come from another process
        return partial(Problem, **self.extra), (self.code, self.status, self.detail)

    def document(self) -> dict[str, Any]:
        """Return the body of the answer, of the type `application/problem+json`."""
        return {
            "type": "about:blank",
            "title": _TITLES.get(self.status) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.extra,
        }


# RFC 9110 renamed these two; Python follows from 3.13 on
_TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}
