from __future__ import annotations

from consequential.service.problems import Problem


def test_a_problem_has_the_members_of_the_standard_and_its_own():
    problem = Problem("unknown_word", 422, "purpose must be one of car, tv", index=3)
    assert problem.document() == {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "code": "unknown_word",
        "detail": "purpose must be one of car, tv",
        "index": 3,
    }
    assert str(problem) == problem.detail


def test_titles_are_the_phrases_of_the_status():
    assert Problem("unknown_loop", 404, "").document()["title"] == "Not Found"
    assert Problem("too_large", 413, "").document()["title"] == "Content Too Large"
