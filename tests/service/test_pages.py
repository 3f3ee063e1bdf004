"""Pages: who gets in, what they see, and what a form from elsewhere or a wrong address gets."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import date, timedelta
from itertools import product

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select
from trial import served_here

from consequential.service import schema
from consequential.service.candidates import History
from consequential.service.keys import SESSION_COOKIE, Account, create_key, new_session, revoke_keys
from consequential.service.loops import settings_in_force
from consequential.service.pages import books, charts, parts, sections, views
from consequential.service.pages.books import Cohort, frozen_cohorts
from consequential.service.pages.groups import Gap, Rate, shown_groups, summed
from consequential.service.pages.rendering import render
from consequential.service.pages.report import report
from consequential.service.pages.views import PAGES
from consequential.service.records import now, stamp
from consequential.service.state import Service

PLACES = ["/loops/lending", *(f"/loops/lending/{page}" for page in PAGES[1:])]
REPORT = "/loops/lending/audit/report"
BROWSER = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def http(page_trial):
    with served_here(page_trial) as client:
        client.headers.pop("Authorization")
        client.headers.update(BROWSER)
        yield client


@pytest.fixture(scope="module")
def store(page_trial):
    store = page_trial.store()
    yield store
    store.close()


@pytest.fixture
def session(http, page_trial):
    """Sign in with a key, by its owner's name or the key itself, and return a client."""
    opened = []

    def signed_in(name: str = "risk") -> httpx.Client:
        client = httpx.Client(base_url=http.base_url, headers=BROWSER, timeout=30.0)
        opened.append(client)
        answer = sign_in(client, page_trial.keys.get(name, name))
        assert answer.status_code == 303
        return client

    yield signed_in
    for client in opened:
        client.close()


def origin(client: httpx.Client) -> dict[str, str]:
    return {"Origin": str(client.base_url).rstrip("/")}


def sign_in(client: httpx.Client, key: str, following: str = "/") -> httpx.Response:
    return client.post("/sign-in", data={"key": key, "next": following}, headers=origin(client))


def decisions(store, **conditions) -> list[dict]:
    table = schema.decision
    wanted = select(table).where(*(table.c[name] == each for name, each in conditions.items()))
    with store.read() as connection:
        return schema.rows(connection, wanted.order_by(table.c.id))


# --- getting in


def test_the_session_of_a_key_is_a_cookie_that_scripts_and_other_sites_do_not_get(http, page_trial):
    answer = sign_in(http, page_trial.keys["risk"], "/loops/lending/people")
    assert (answer.status_code, answer.headers["location"]) == (303, "/loops/lending/people")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page_trial.keys["risk"].lower() not in cookie
    http.cookies.clear()


@pytest.mark.parametrize("place", [*PLACES, REPORT])
def test_without_a_session_every_page_leads_to_the_sign_in(http, place):
    answer = http.get(f"{place}?of=A-1")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/sign-in?next={place}%3Fof%3DA-1"
    assert http.get(answer.headers["location"]).status_code == 200


@pytest.mark.parametrize(
    ("name", "why"),
    [("nobody's", "not known"), ("", "not known"), ("shop", "not good for reading")],
)
def test_a_key_that_opens_no_page_is_told_why(http, page_trial, name, why):
    answer = sign_in(http, page_trial.keys.get(name, name))
    assert answer.status_code == 401
    assert why in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("elsewhere", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_signing_in_never_leads_to_another_site(http, page_trial, elsewhere):
    assert sign_in(http, page_trial.keys["risk"], elsewhere).headers["location"] == "/"
    http.cookies.clear()


def test_old_and_forged_sessions_are_refused(http, page_trial, store):
    secret = page_trial.settings.secret
    with store.read() as connection:
        account = connection.execute(
            select(schema.account.c.id).where(schema.account.c.name == "risk")
        ).scalar_one()
    good = new_session(secret, account, now())
    assert http.get(PLACES[0], headers={"Cookie": f"{SESSION_COOKIE}={good}"}).status_code == 200
    for cookie in (
        new_session(secret, account, now() - timedelta(hours=12, seconds=5)),
        new_session(secret, account, now() + timedelta(hours=1)),
        new_session(b"x" * 32, account, now()),
        new_session(secret, "nobody", now()),
        good[:-1] + ("0" if good[-1] != "0" else "1"),
        "..", "", "a.b.c",
    ):  # fmt: skip
        assert (
            http.get(PLACES[0], headers={"Cookie": f"{SESSION_COOKIE}={cookie}"}).status_code == 303
        )


def test_a_revoked_key_is_out_at_once(session, store):
    with store.write() as connection:
        key = create_key(connection, "leaver", ["read"], now())
    client = session(key)
    assert client.get(PLACES[0]).status_code == 200
    with store.write() as connection:
        revoke_keys(connection, "leaver", now())
    assert client.get(PLACES[0]).status_code == 303
    assert "was revoked" in sign_in(client, key).text


def test_signing_out_ends_the_session(session):
    client = session()
    assert client.post("/sign-out", headers=origin(client)).status_code == 303
    assert client.get(PLACES[0]).status_code == 303


@pytest.mark.parametrize("place", ["/sign-in", "/sign-out"])
@pytest.mark.parametrize("header", [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_form_from_another_site_is_refused(session, place, header):
    answer = session().post(place, data={"key": "x"}, headers=header)
    assert answer.status_code == 403
    assert "not sent from a page of this service" in answer.text
    assert "does not pass on the Host header" in answer.text
    assert "Another key" not in answer.text


def test_a_form_that_is_too_large_is_refused(http):
    answer = http.post("/sign-in", data={"key": "x" * 20_000}, headers=origin(http))
    assert answer.status_code == 413


# --- what pages say


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("loop", ["lending", "cards"])
def test_every_page_opens_and_obeys_its_own_security_policy(session, place, loop):
    answer = session("reader").get(place.replace("lending", loop))
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "no-store" in answer.headers["cache-control"]
    assert "style=" not in answer.text
    assert not re.search(r"<script(?! src=\"/static/)|<style| on\w+=", answer.text)
    assert "Rehearsal" in answer.text  # on every page of such a loop


def test_the_start_page_leads_to_a_loop_and_the_choice_to_another(session):
    client = session()
    assert client.get("/").headers["location"] == "/loops/cards"
    chosen = client.get("/loops", params={"loop": "lending", "page": "people"})
    assert chosen.headers["location"] == "/loops/lending/people"
    assert client.get("/loops", params={"loop": "none"}).status_code == 404


@pytest.mark.parametrize("place", ["/loops/none", "/nowhere", "/loops/lending/nowhere"])
def test_a_wrong_address_gets_a_page_that_helps(session, place):
    answer = session().get(place)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert 'href="/' in answer.text


def test_a_program_gets_its_problems_as_before(http):
    answer = http.get("/v1/nowhere", headers={"Accept": "*/*"})
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_figures_of_the_overview_are_those_of_the_cohorts(session, page_trial, store):
    text = " ".join(re.sub(r"<[^>]+>", " ", session().get(PLACES[0]).text).split())
    rows = decisions(store, loop="lending")
    last = date.fromisoformat(max(row["time"][:10] for row in rows)) - timedelta(1)  # closed
    days = {str(last - timedelta(k)) for k in range(30)}
    recent = [row for row in rows if row["time"][:10] in days]
    accepted = sum(row["accepted"] for row in recent) / len(recent)
    expected = sum(row["propensity"] for row in recent) / len(recent)
    assert f"Accepted {100 * accepted:.0f} % agreed 20 to 90 {len(recent)} people" in text
    assert f"closed days, expected {100 * expected:.0f} %" in text


def test_utility_of_a_cohort_is_the_mean_of_what_its_applicants_brought(page_trial, store):
    with store.read() as connection:
        settings = settings_in_force(connection)["lending"]
        found = frozen_cohorts(connection, page_trial.settings.directory, "lending", settings)
        rows = schema.rows(connection, select(schema.outcome))
    cohort = next(each for each in found if each.counts["missing"])
    labels = {row["decision"]: row["label"] for row in rows}
    own = decisions(store, loop="lending", cohort=cohort.period)
    accepted = [row for row in own if row["accepted"]]
    assert any(row["id"] not in labels for row in accepted)
    (earned,) = cohort.earned.values()

    def total(missing: dict[bool, float]) -> float:
        return sum(
            labels.get(row["id"], missing[row["propensity"] < 1.0]) - 0.6 for row in accepted
        )

    likely = {  # of somebody whose label is missing
        by_chance: np.mean([
            labels[row["id"]]
            for row in accepted
            if row["id"] in labels and (row["propensity"] < 1.0) == by_chance
        ])
        for by_chance in (False, True)
    }  # fmt: skip
    assert earned.mean == pytest.approx(total(likely) / len(own))
    assert earned.bounds[0] < total({False: 0.0, True: 0.0}) / len(own) < earned.mean
    assert earned.mean < total({False: 1.0, True: 1.0}) / len(own) < earned.bounds[1]


def test_a_missing_label_of_somebody_accepted_by_chance_is_taken_from_others_like_them(tmp_path):
    """Of 10 people accepted by chance half have a label and 1 of 5 succeeded; others all did."""
    file = tmp_path / "cohort.parquet"
    chance = {"propensity": [0.1] * 10, "label": [1.0, 0.0, 0.0, 0.0, 0.0] + [np.nan] * 5}
    sure = {"propensity": [1.0] * 90, "label": [1.0] * 89 + [np.nan]}
    told = {name: chance[name] + sure[name] for name in chance}
    same = {"deployment": [1] * 100, "decision": [1] * 100, "amount": [1.0] * 100}
    pq.write_table(pa.table(told | same), file)
    (earned,) = Cohort("2026-01", 1, {}, file, "digest", cost=0.6).earned.values()
    assert earned.exploring_costs == pytest.approx(1000 * 10 * (0.6 - 0.2) / 100)
    assert earned.mean == pytest.approx((90 * 0.4 - 10 * 0.4) / 100)


def test_a_cohort_with_days_that_are_not_looked_at_has_no_row(page_trial, store, monkeypatch):
    """Its outcomes came later, so there would be more of them than accepted people."""
    service = Service(page_trial.settings, store)
    assert (
        sections.outcomes(service, service.live("lending"))["arrivals"][-1]["cohort"] == "2026-W01"
    )
    monkeypatch.setattr(books, "DAYS", 20)
    rows = sections.outcomes(service, service.live("lending"))["arrivals"]
    assert [row["cohort"] for row in rows] == ["2026-W11", "2026-W10", "2026-W09"]


def test_a_decision_is_found_by_its_id_and_by_its_application(session, store):
    client, (row, *_) = session("reader"), decisions(store, loop="lending", accepted=False)
    for name in (row["id"], row["application_id"]):
        answer = client.get("/loops/lending/decision", params={"of": name})
        assert answer.status_code == 200
        assert "Refused on" in answer.text
        assert row["id"] in answer.text
        assert row["digest"] in answer.text  # the receipt, whole
    again = client.get("/loops/lending/decision", params={"of": row["id"], "replay": "1"})
    assert "the same draw, propensity and decision come out" in again.text
    # a decision belongs to its loop
    assert client.get("/loops/cards/decision", params={"of": row["id"]}).status_code == 404


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "A-nobody", "\0", "x" * 5000])
def test_what_is_not_found_is_shown_as_text(session, name):
    answer = session().get("/loops/lending/decision", params={"of": name})
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    ("day", "told"),
    [
        ("2026-01-20", "every decision replays"),
        ("20260120", "every decision replays"),
        ("1999-01-01", "it is not closed"),
        ("2030-01-01", "1 January 2030 is not closed yet"),
        ("no day", "No such day"),
    ],
)
def test_verifying_a_day_says_what_was_found(session, day, told):
    text = session().get("/loops/lending/audit", params={"verify": day}).text
    assert told in text
    assert ("1 finding" in text) == (day == "1999-01-01")


def test_the_audit_page_offers_the_report_as_a_file(session, page_trial, store, monkeypatch):
    """It is what the command writes but for the time; two at once would keep the service busy."""
    client = session("reader")
    assert f'href="{REPORT}"' in client.get("/loops/lending/audit").text
    answer = client.get(REPORT)
    assert answer.status_code == 200
    name = rf'attachment; filename="lending-{now():%Y-%m-%d}\.html"'
    assert re.fullmatch(name, answer.headers["content-disposition"])
    written = report(Service(page_trial.settings, store), "lending", now())
    assert len(written.encode()) < 2e6

    def without_time(text: str) -> str:
        return re.sub(r"Written on [\d: -]+ UTC", "", text)

    assert without_time(answer.text) == without_time(written)
    with views._reporting:
        assert client.get(REPORT).status_code == 503
    assert client.get("/loops/cards/audit/report").status_code == 409  # nobody was decided on
    monkeypatch.setattr(views, "_LARGEST_REPORT", 100)
    assert "run consequential report on the server" in client.get(REPORT).text


@pytest.mark.parametrize(
    ("limit", "told"), [(0.5, ""), (0.1, "May be above the limit"), (0.05, "Above the limit")]
)
def test_a_gap_that_may_be_above_its_limit_is_marked(page_trial, limit, told):
    """The gap is 7.6 percentage points, at most 14."""
    service = Service(page_trial.settings, page_trial.store())
    live = service.live("lending")
    live = replace(live, settings=replace(live.settings, max_gap=limit))
    frame = {"account": Account("risk", frozenset({"read"})), "loops": ["lending"], "alarms": [],
             "pages": PAGES, "page": "overview", "loop_name": "lending"}  # fmt: skip
    text = render("overview.html", live=live, **frame, **sections.overview(service, live))
    service.store.close()
    assert ('<div class="wrong">' in text) == bool(told)
    assert ("above the limit" in text.lower()) == bool(told)
    assert told in text


def history_of(*deployments: tuple[dict[str, float], str]) -> History:
    rows = [
        {"number": k + 1, "shares": shares, "evidence": evidence, "by": "ben", "time": stamp(now())}
        for k, (shares, evidence) in enumerate(deployments)
    ]
    return History([], rows, [], {}, 1)


def test_what_was_deployed_without_evidence_stays_marked_when_it_is_rolled_back_to():
    old, new = {"old": 1.0}, {"new": 1.0}
    history = history_of(
        (old, "without evidence: a start"),
        (new, "evaluation 3: agreed"),
        (old, "roll back: drift:income"),
        (new, "without evidence: it was sound"),
        ({"new": 0.4, "old": 0.6}, "smaller shares of candidates"),
        (new, "evaluation 9"),
        (old, "evaluation 12"),
        (new, "roll back"),
    )
    marked = [row["number"] for row in history.deployments if history.is_unproven(row)]
    assert marked == [1, 3, 4, 5]
    evidence = [row[-1] for row in parts.deployments(history).rows][::-1]
    assert [k + 1 for k, told in enumerate(evidence) if "without evidence</strong>" in told
            or '<strong class="mark">without evidence' in told] == marked  # fmt: skip
    assert evidence[2].startswith("roll back: drift:income <strong")


@pytest.mark.parametrize("place", ["", "/candidates", "/decision?of=A-0-0", "/audit"])
def test_what_decides_without_evidence_is_marked_so(session, place):
    text = session("reader").get(f"/loops/lending{place}").text
    assert '<strong class="mark">without evidence' in text


# --- changing what decides

CHANGE = "/loops/lending/candidates/change"
PROMOTE = {"kind": "promote", "candidate": "1"}
SHARE = {"kind": "share", "candidate": "1", "percent": "10"}
UNPROVEN = {"kind": "promote", "candidate": "2"}
BACK = {"kind": "roll back"}
WITHDRAW = {"kind": "withdraw", "candidate": "2"}


def hidden_fields(text: str) -> dict[str, str]:
    found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text.split("<h1>")[1])
    return {name: html.unescape(value) for name, value in found}


def deployments(store) -> list[dict]:
    table = schema.deployment
    own = select(table).where(table.c.loop == "lending").order_by(table.c.number)
    with store.read() as connection:
        return schema.rows(connection, own)


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (PROMOTE, {"risk", "admin"}),
        (SHARE, {"risk", "admin"}),
        (UNPROVEN, {"admin"}),
        (BACK, {"risk", "admin", "author"}),
        (WITHDRAW, {"admin", "author"}),
    ],
)
def test_who_may_not_change_something_neither_sees_nor_reaches_it(session, store, asked, allowed):
    """An author may approve, but not the own policy; only an admin may without evidence."""
    form = hidden_fields(session("admin").get(CHANGE, params=asked).text)
    for name in ("reader", "risk", "admin", "author"):
        client, may = session(name), name in allowed
        page = html.unescape(client.get("/loops/lending/candidates").text)
        shown = re.findall(r'href="[^"]*kind=([a-z+]+)(?:&candidate=(\d+))?"', page)
        shown += re.findall(r'value="(share)"><input [^>]*value="(\d+)"', page)
        wanted = (asked["kind"].replace(" ", "+"), asked.get("candidate", ""))
        assert (wanted in shown) == may, name
        assert (client.get(CHANGE, params=asked).status_code == 200) == may, name
        if not may:
            sent = client.post(CHANGE, data=form | {"why": "because"}, headers=origin(client))
            assert sent.status_code == 403, name
    assert len(deployments(store)) == 2


def test_a_form_from_elsewhere_or_without_a_session_changes_nothing(session, http, store):
    client = session("risk")
    form = hidden_fields(client.get(CHANGE, params=PROMOTE).text)
    for header in ({}, {"Origin": "https://evil.example"}):
        assert client.post(CHANGE, data=form, headers=header).status_code == 403
    ended = http.post(CHANGE, data=form, headers=origin(http))
    assert ended.status_code == 401
    assert "Your session has ended" in ended.text
    assert len(deployments(store)) == 2


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"kind": "nothing"}, 404),
        ({"kind": "promote", "candidate": "99"}, 404),
        ({"kind": "promote"}, 404),
        (SHARE | {"percent": "50"}, 422),
        (SHARE | {"percent": "0"}, 422),
        (SHARE | {"percent": "many"}, 422),
    ],
)
def test_a_change_that_makes_no_sense_gets_a_page_that_says_so(session, asked, status):
    answer = session("admin").get(CHANGE, params=asked)
    assert answer.status_code == status
    assert "Overview of lending" in answer.text


@pytest.mark.parametrize(
    "changed",
    [
        {"shares": ""}, {"shares": "[]"}, {"shares": '{"x": "y"}'}, {"shares": "{}"},
        {"shares": '{"none": 1}'}, {"after": "1"}, {"evidence": "99"}, {"evidence": "3"},
        {"evidence": "8"}, {"shares": '{"none": NaN}'}, {"shares": f'{{"none": 1{"0" * 400}}}'},
    ],
)  # fmt: skip
def test_a_form_that_is_not_what_was_shown_deploys_nothing(session, store, changed):
    """Another share, a deployment meanwhile, an unknown, old or another candidate's evidence."""
    client = session("risk")
    form = hidden_fields(client.get(CHANGE, params=PROMOTE).text) | changed
    assert client.post(CHANGE, data=form, headers=origin(client)).status_code in (409, 422)
    assert len(deployments(store)) == 2


# --- privacy


def test_no_group_of_fewer_than_ten_people_is_shown_or_left_over():
    """Whoever subtracts what is shown from all people is left with nobody."""
    sizes = ([0, 1, 9, 10, 60], [3, 10, 400], [0, 8, 500], [0, 4, 30])
    names = ("a", "b", "c", "unknown")
    for first, second in zip(product(*sizes), reversed(list(product(*sizes))), strict=True):
        cohorts = {
            period: [Rate(g, n, n // 2, 0, 0) for g, n in zip(names, row, strict=True) if n]
            for period, row in (("1", first), ("2", second))
        }
        shown = shown_groups(cohorts)
        for period, rates in shown.items():
            assert all(rate.people >= 10 for rate in rates)
            total = sum(rate.people for rate in cohorts[period])
            assert sum(rate.people for rate in rates) == total
        assert all(rate.people >= 10 for rate in summed(shown))
        if not shown:  # then even all of them are too few
            assert min(map(sum, (first, second))) < 10


def test_people_of_unknown_group_take_small_groups_in():
    sizes = {"male": 500, "female": 400, "other": 3, "unknown": 90}
    rates = [Rate(group, n, 0, 0, 0) for group, n in sizes.items()]
    found = [(rate.group, rate.people) for rate in shown_groups({"1": rates})["1"]]
    assert found == [("female", 400), ("male", 500), ("unknown", 93)]


def test_small_groups_are_on_no_page(session, page_trial, store):
    with store.read() as connection:
        settings = settings_in_force(connection)["lending"]
        cohorts = frozen_cohorts(connection, page_trial.settings.directory, "lending", settings)
    assert "other" in {rate.group for cohort in cohorts for rate in cohort.rates}
    text = session("admin").get("/loops/lending/people").text
    assert "female, other" in text
    assert not re.search(r">\s*(other|female)\s*<", text)


def test_a_gap_and_its_bound_are_those_of_the_formula():
    a, b = Rate("a", 400, 300, 0, 0), Rate("b", 100, 60, 0, 0)
    gap = Gap.of([a, b])
    assert gap is not None
    assert gap.value == pytest.approx(0.15)
    error = (0.75 * 0.25 / 400 + 0.6 * 0.4 / 100) ** 0.5
    assert gap.at_most == pytest.approx(0.15 + 1.644854 * error)
    assert Gap.of([a, Rate("unknown", 100, 60, 0, 0)]) is None


# --- charts


def test_a_chart_is_drawn_once_and_its_numbers_stand_beside_it():
    points = [("2026-01", 0.17, 0.16, 0.18), ("2026-02", 0.18, 0.17, 0.19)]
    chart = charts.utility(points, [(1, "2")])
    assert charts.utility(points, [(1, "2")]).svg is chart.svg
    assert chart.rows[0] == ("2026-02", ".180", ".170", ".190")
    assert "2026-01" in chart.svg  # text is text
    assert "var(--blue)" in chart.svg
    assert "style=" not in chart.svg
    assert "#0072b2" not in chart.svg
