"""The gate: what a refusal says, what it returns, and who is refused first."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admission.gate import Gate, GateConfig, LimitPolicy
from engine.admission.headroom_limit import HeadroomConfig
from engine.admission.permit import Permit, Reservation
from engine.admission.priority import ceiling
from engine.admission.quote import make_quote
from engine.errors import BrokenInvariant, InvalidInput, Refusal, RefusalCode
from engine.types import ModelSpec, Priority, TenantSpec

MODELS = {"m": ModelSpec(model="m", versions=frozenset({"v1"}), slo_ms=1000.0)}


def gate_of(*tenants: TenantSpec, limit: float = 256.0) -> Gate:
    """A gate with one model "m" under a limit that starts, and may fall, as told."""
    gate = Gate(GateConfig(headroom=HeadroomConfig(initial=limit, floor=min(limit, 32.0))))
    gate.set_models(MODELS, 0.0)
    gate.set_tenants({spec.tenant: spec for spec in tenants}, 0.0)
    return gate


def enter(
    gate: Gate, now_ms: float = 0.0, *, tenant: str = "acme", tokens: int = 10, priority: int = 1
) -> Permit | Refusal:
    reservation = gate.reserve(tenant, tokens, now_ms)
    if isinstance(reservation, Refusal):
        return reservation
    return gate.admit(reservation, "m", priority, now_ms)


def admitted(answer: Permit | Refusal) -> Permit:
    assert isinstance(answer, Permit), answer
    return answer


def refused(answer: Permit | Reservation | Refusal) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


class TestQuotas:
    def test_a_tenant_under_its_limits_is_never_refused_for_five_minutes(self) -> None:
        gate = gate_of(
            TenantSpec(tenant="acme", requests_per_s=500 / 60.0, tokens_per_s=500_000 / 60.0)
        )
        rng = random.Random(1)
        now_ms = 0.0
        spent = 0
        while now_ms < 300_000.0:
            now_ms += rng.expovariate(450 / 60_000.0)
            admitted(enter(gate, now_ms, tokens=1000)).succeed(50.0, 1000, now_ms + 50.0)
            spent += 1000
        assert spent == pytest.approx(5 * 450_000, rel=0.05)

    def test_past_the_limit_only_the_surplus_is_refused_and_a_retry_on_time_succeeds(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", tokens_per_s=500_000 / 60.0))
        now_ms = 0.0
        served = 0
        retried = 0
        while now_ms < 300_000.0:
            now_ms += 100.0
            answer = enter(gate, now_ms, tokens=1000)
            if isinstance(answer, Refusal):
                assert answer.retry_after_ms is not None
                assert answer.retry_after_ms > 0.0
                now_ms += answer.retry_after_ms
                answer = admitted(enter(gate, now_ms, tokens=1000))
                retried += 1
            answer.succeed(50.0, 1000, now_ms)
            served += 1000
        assert retried > 0
        assert served == pytest.approx(500_000 + 5 * 500_000, rel=0.01)

    def test_infeasible_requests_do_not_empty_a_burst(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", requests_per_s=0.01, requests_burst=4))
        for _ in range(4):
            reservation = gate.reserve("acme", 10, 0.0)
            assert isinstance(reservation, Reservation)
            reservation.give_back(0.0)
        for _ in range(4):
            admitted(enter(gate))
        assert refused(enter(gate)).code is RefusalCode.QUOTA_EXCEEDED

    def test_a_refusal_by_the_models_limit_costs_no_quota(self) -> None:
        gate = gate_of(
            TenantSpec(tenant="acme", requests_per_s=0.01, requests_burst=4, tokens_per_s=1.0),
            limit=1.0,
        )
        first = admitted(enter(gate))
        for _ in range(20):
            assert refused(enter(gate)).code is RefusalCode.OVERLOADED
        first.succeed(10.0, 10, 0.0)
        assert gate.tenant_in_flight("acme") == 0
        for _ in range(3):
            admitted(enter(gate)).succeed(10.0, 10, 0.0)
        assert refused(enter(gate)).limit_name == "requests_per_minute"

    def test_a_token_refusal_returns_the_request_it_had_taken(self) -> None:
        gate = gate_of(
            TenantSpec(
                tenant="acme",
                requests_per_s=0.01,
                requests_burst=2,
                tokens_per_s=1.0,
                tokens_burst=100,
            )
        )
        permit = admitted(enter(gate, tokens=100))
        for _ in range(5):
            assert refused(enter(gate, tokens=50)).limit_name == "tokens_per_minute"
        permit.succeed(5.0, 0, 0.0)
        admitted(enter(gate, tokens=100))

    def test_unused_tokens_of_a_reservation_come_back(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", tokens_per_s=0.001, tokens_burst=1000))
        admitted(enter(gate, tokens=1000)).succeed(20.0, 100, 0.0)
        admitted(enter(gate, tokens=900))
        assert refused(enter(gate, tokens=10)).used == pytest.approx(1000.0, abs=1.0)

    @pytest.mark.parametrize("verb", ["ignore", "drop"])
    def test_a_request_that_ended_without_using_anything_cost_nothing(self, verb: str) -> None:
        gate = gate_of(TenantSpec(tenant="acme", requests_per_s=0.01, requests_burst=1))
        for _ in range(3):
            permit = admitted(enter(gate))
            if verb == "ignore":
                permit.ignore(0, 0.0)
            else:
                permit.drop(900.0, 0, 0.0)

    @pytest.mark.parametrize("what", ["requests", "tokens"])
    def test_a_burst_that_would_never_refill_is_refused_by_name(self, what: str) -> None:
        with pytest.raises(InvalidInput, match=f"{what}_burst") as refused:
            TenantSpec(tenant="acme", **{f"{what}_burst": 5.0})
        assert refused.value.field == f"{what}_burst"

    def test_a_need_above_the_burst_is_an_invalid_request_and_promises_no_wait(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", tokens_per_s=10.0, tokens_burst=100))
        refusal = refused(enter(gate, tokens=101))
        assert refusal.code is RefusalCode.INVALID_REQUEST
        assert refusal.retry_after_ms is None
        assert (refusal.limit_name, refusal.limit, refusal.used) == ("tokens_burst", 100.0, 101.0)

    def test_a_tenants_requests_in_flight_are_bounded(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", max_in_flight=2))
        first = admitted(enter(gate))
        admitted(enter(gate))
        refusal = refused(enter(gate))
        assert (refusal.limit_name, refusal.limit, refusal.used) == ("max_in_flight", 2.0, 2.0)
        assert refusal.retry_after_ms is not None
        assert refusal.retry_after_ms > 0.0
        first.succeed(40.0, 10, 0.0)
        admitted(enter(gate))

    def test_a_cap_of_four_is_free_again_after_every_kind_of_end(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", max_in_flight=4))
        rng = random.Random(7)
        held: list[Permit] = []
        for _ in range(200):
            answer = enter(gate)
            if isinstance(answer, Permit):
                held.append(answer)
            else:
                permit = held.pop(rng.randrange(len(held)))
                end(permit, rng.choice(["succeed", "ignore", "drop"]))
        while held:
            end(held.pop(), "ignore")
        assert gate.tenant_in_flight("acme") == 0
        assert gate.in_flight("m") == 0
        for _ in range(4):
            admitted(enter(gate))

    def test_reloading_a_quota_keeps_the_level_and_holds_at_once(self) -> None:
        before = TenantSpec(tenant="acme", tokens_per_s=0.001, tokens_burst=100)
        gate = gate_of(before)
        admitted(enter(gate, tokens=80))
        gate.set_tenants({"acme": before}, 0.0)
        assert refused(enter(gate, tokens=50)).code is RefusalCode.QUOTA_EXCEEDED
        wider = TenantSpec(tenant="acme", tokens_per_s=0.001, tokens_burst=200)
        gate.set_tenants({"acme": wider}, 0.0)
        assert refused(enter(gate, tokens=50)).code is RefusalCode.QUOTA_EXCEEDED
        assert gate.tenant_in_flight("acme") == 1
        gate.set_tenants({"acme": TenantSpec(tenant="acme")}, 0.0)
        admitted(enter(gate, tokens=50))

    def test_a_tenant_that_is_removed_while_it_runs_leaves_no_negative_count(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme"), TenantSpec(tenant="other"))
        permit = admitted(enter(gate))
        gate.set_tenants({"other": TenantSpec(tenant="other")}, 0.0)
        gate.set_tenants({"acme": TenantSpec(tenant="acme")}, 0.0)
        permit.succeed(5.0, 1, 0.0)
        assert gate.tenant_in_flight("acme") == 0
        assert gate.in_flight("m") == 0

    def test_a_disabled_or_unknown_tenant_is_forbidden_and_told_why(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", enabled=False))
        disabled = refused(enter(gate))
        unknown = refused(enter(gate, tenant="amce"))
        assert disabled.code is unknown.code is RefusalCode.FORBIDDEN
        assert "disabled" in disabled.message
        assert "amce" in unknown.message

    def test_with_no_tenant_configured_anyone_may_use_everything(self) -> None:
        gate = gate_of(limit=64.0)
        permits = [admitted(enter(gate, tenant=f"t{n}", tokens=10**6)) for n in range(64)]
        assert len(permits) == 64


class TestPermits:
    @pytest.mark.parametrize("first", ["succeed", "ignore", "drop"])
    @pytest.mark.parametrize("second", ["succeed", "ignore", "drop"])
    def test_a_permit_ends_exactly_once(self, first: str, second: str) -> None:
        gate = gate_of()
        permit = admitted(enter(gate))
        end(permit, first)
        with pytest.raises(BrokenInvariant):
            end(permit, second)
        assert gate.in_flight("m") == 0

    def test_a_reservation_is_used_exactly_once(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", max_in_flight=3))
        reservation = gate.reserve("acme", 1, 0.0)
        assert isinstance(reservation, Reservation)
        reservation.give_back(0.0)
        with pytest.raises(BrokenInvariant):
            reservation.give_back(0.0)
        with pytest.raises(BrokenInvariant):
            gate.admit(reservation, "m", 1, 0.0)
        assert gate.tenant_in_flight("acme") == 0

    def test_a_reservation_that_the_model_refused_is_returned_already(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", max_in_flight=3))
        reservation = gate.reserve("acme", 1, 0.0)
        assert isinstance(reservation, Reservation)
        refusal = refused(gate.admit(reservation, "nowhere", 1, 0.0))
        assert refusal.code is RefusalCode.MODEL_NOT_FOUND
        assert gate.tenant_in_flight("acme") == 0

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["enter", "give_back", "succeed", "ignore", "drop", "reload"]),
                st.integers(0, 2),
                st.integers(0, 3),
                st.floats(0.0, 700.0),
            ),
            max_size=120,
        )
    )
    def test_every_exit_returns_what_was_taken_and_nothing_more(
        self, steps: list[tuple[str, int, int, float]]
    ) -> None:
        specs = {
            f"t{n}": TenantSpec(
                tenant=f"t{n}", requests_per_s=5.0, tokens_per_s=50.0, max_in_flight=6
            )
            for n in range(3)
        }
        gate = gate_of(*specs.values(), limit=8.0)
        held: list[tuple[str, Permit]] = []
        now_ms = 0.0
        for verb, number, priority, pause_ms in steps:
            now_ms += pause_ms
            tenant = f"t{number}"
            if verb == "enter":
                answer = enter(gate, now_ms, tenant=tenant, tokens=20, priority=priority)
                if isinstance(answer, Permit):
                    held.append((tenant, answer))
                else:
                    assert answer.retry_after_ms is None or answer.retry_after_ms > 0.0
            elif verb == "give_back":
                reservation = gate.reserve(tenant, 20, now_ms)
                if isinstance(reservation, Reservation):
                    reservation.give_back(now_ms)
            elif verb == "reload":
                gate.set_tenants(specs, now_ms)
            elif held:
                end(held.pop(number % len(held))[1], verb, now_ms)
            assert gate.in_flight("m") == len(held)
            for name in specs:
                assert gate.tenant_in_flight(name) == sum(1 for t, _ in held if t == name)
            for view in gate.tenant_views(now_ms):
                level, burst = view["bucketLevel"], view["bucketBurst"]
                assert level is not None
                assert burst is not None
                assert 0.0 <= level <= burst


def end(permit: Permit, verb: str, now_ms: float = 0.0) -> None:
    if verb == "succeed":
        permit.succeed(20.0, 5, now_ms)
    elif verb == "ignore":
        permit.ignore(5, now_ms)
    else:
        permit.drop(900.0, 0, now_ms)


class TestPriorities:
    def test_a_lone_low_priority_tenant_may_use_the_whole_limit(self) -> None:
        gate = gate_of(limit=50.0)
        for _ in range(50):
            admitted(enter(gate, priority=Priority.LOW))
        assert refused(enter(gate, priority=Priority.LOW)).limit == 50.0

    def test_under_contention_the_highest_priority_is_refused_last(self) -> None:
        gate = gate_of(limit=100.0)
        steady = ModelSpec(model="m", versions=frozenset({"v1"}), slo_ms=250.0)
        gate.set_models({"m": steady}, 0.0)  # 200 ms are exactly on target: the limit rests
        rng = random.Random(11)
        held: list[tuple[float, int, Permit]] = []
        asked = [0] * 4
        let_in = [0] * 4
        now_ms = 0.0
        while now_ms < 20_000.0:
            now_ms += rng.expovariate(1.0)
            while held and held[0][0] <= now_ms:
                held.pop(0)[2].succeed(200.0, 1, now_ms)
            priority = rng.randrange(4)
            asked[priority] += 1
            answer = enter(gate, now_ms, priority=priority)
            if isinstance(answer, Permit):
                let_in[priority] += 1
                held.append((now_ms + 200.0, priority, answer))
        shares = [entered / wanted for entered, wanted in zip(let_in, asked, strict=True)]
        assert shares == sorted(shares)
        assert shares[3] > 0.95
        assert shares[0] < 0.2

    def test_room_for_a_rival_who_left_is_given_back_within_seconds(self) -> None:
        gate = gate_of(limit=100.0)
        urgent = [admitted(enter(gate, priority=Priority.CRITICAL)) for _ in range(40)]
        for permit in urgent:
            permit.succeed(100.0, 1, 500.0)
        gate.view(1000.0)
        assert len(fill(gate, 1000.0)) == 70
        gate = gate_of(limit=100.0)
        for permit in [admitted(enter(gate, priority=Priority.CRITICAL)) for _ in range(40)]:
            permit.succeed(100.0, 1, 500.0)
        for second in range(1, 9):
            gate.view(1000.0 * second)
        assert len(fill(gate, 8000.0)) >= 99

    def test_ceilings_are_graded_and_the_highest_is_the_limit(self) -> None:
        ceilings = [ceiling(priority, 200.0) for priority in Priority]
        assert ceilings == sorted(ceilings)
        assert ceilings == [140.0, 170.0, 190.0, 200.0]
        assert ceiling(Priority.LOW, 200.0, 0.0) == 200.0


def fill(gate: Gate, now_ms: float) -> list[Permit]:
    permits = []
    while isinstance(answer := enter(gate, now_ms, priority=Priority.LOW), Permit):
        permits.append(answer)
    return permits


class TestAnswers:
    def test_every_refusal_names_the_limit_its_value_the_use_and_the_reset(self) -> None:
        tenants = [
            TenantSpec(tenant="requests", requests_per_s=1.0, requests_burst=1),
            TenantSpec(tenant="tokens", tokens_per_s=1.0, tokens_burst=10),
            TenantSpec(tenant="flight", max_in_flight=1),
            TenantSpec(tenant="free"),
        ]
        gate = gate_of(*tenants, limit=4.0)
        for spec in tenants:
            admitted(enter(gate, tenant=spec.tenant))
        for spec in tenants:
            refusal = refused(enter(gate, tenant=spec.tenant))
            assert isinstance(refusal.code, RefusalCode)
            assert refusal.limit_name
            assert refusal.limit is not None
            assert refusal.used is not None
            assert refusal.retry_after_ms is not None
            assert 0.0 < refusal.retry_after_ms < inf

    def test_a_question_takes_nothing_and_agrees_with_the_answer(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme", requests_per_s=0.1, requests_burst=2), limit=8.0)
        for _ in range(10):
            assert gate.would_refuse("acme", 10, "m", 1, 0.0) is None
        admitted(enter(gate))
        admitted(enter(gate))
        asked = gate.would_refuse("acme", 10, "m", 1, 0.0)
        told = refused(enter(gate))
        assert asked == told

    def test_a_question_about_the_models_limit_agrees_too(self) -> None:
        gate = gate_of(limit=1.0)
        admitted(enter(gate))
        asked = gate.would_refuse("anyone", 10, "m", 1, 0.0)
        assert asked is not None
        assert asked.code is refused(enter(gate)).code is RefusalCode.OVERLOADED
        unknown = gate.would_refuse("anyone", 10, "n", 1, 0.0)
        assert unknown is not None
        assert unknown.code is RefusalCode.MODEL_NOT_FOUND

    def test_the_view_shows_the_limit_nearest_to_its_ceiling(self) -> None:
        gate = Gate(GateConfig(policy=LimitPolicy.GRADIENT))
        assert gate.view(0.0)["reason"] == "no model is configured"
        names = ("idle", "busy")
        gate.set_models({n: ModelSpec(model=n, versions=frozenset({"v"})) for n in names}, 0.0)
        for _ in range(40):  # of 64
            reservation = gate.reserve("anyone", 1, 0.0)
            assert isinstance(reservation, Reservation)
            gate.admit(reservation, "busy", 1, 0.0)
        view = gate.view(0.0)
        assert (view["policy"], view["inFlight"], view["p95Ms"]) == ("gradient", 40, None)

    def test_the_limit_that_was_shown_jumped_between_models_with_every_request(self) -> None:
        gate = Gate(GateConfig(policy=LimitPolicy.GRADIENT))
        objectives = {"first": 900.0, "second": 500.0}
        versions = frozenset({"v"})
        models = {n: ModelSpec(model=n, versions=versions, slo_ms=s) for n, s in objectives.items()}
        gate.set_models(models, 0.0)
        assert gate.view(0.0)["sloMs"] == 900.0
        reservation = gate.reserve("anyone", 1, 0.0)
        assert isinstance(reservation, Reservation)
        gate.admit(reservation, "second", 1, 0.0)
        assert gate.view(0.0)["sloMs"] == 900.0

    def test_rates_of_a_tenant_are_of_the_last_ten_seconds(self) -> None:
        gate = gate_of(TenantSpec(tenant="acme"))
        for tenth in range(300):
            now_ms = 100.0 * tenth
            admitted(enter(gate, now_ms)).succeed(10.0, 7, now_ms)
            if tenth % 10 == 0:
                view = gate.tenant_views(now_ms)[0]
        assert view["ratePerS"] == pytest.approx(10.0, rel=0.1)
        assert view["tokensPerS"] == pytest.approx(70.0, rel=0.1)
        assert view["bucketLevel"] is None

    def test_a_quote_says_how_surely_and_what_would_let_it_pass(self) -> None:
        sure = make_quote(expected_ms=100.0, deviation_ms=10.0, remaining_ms=200.0)
        assert sure.probability_on_time == pytest.approx(1.0, abs=1e-6)
        assert sure.remedy is None
        even = make_quote(expected_ms=100.0, deviation_ms=10.0, remaining_ms=100.0)
        assert even.probability_on_time == pytest.approx(0.5)
        assert even.earliest_deadline_ms == pytest.approx(116.4, abs=0.1)
        assert even.remedy is not None
        assert "116" in even.remedy
        unknown = make_quote()
        assert unknown.probability_on_time is None
        refusal = Refusal(code=RefusalCode.QUOTA_EXCEEDED, message="no", retry_after_ms=250.0)
        told = make_quote(refusal=refusal, expected_ms=1.0, remaining_ms=10.0)
        assert told.probability_on_time == 0.0
        assert told.remedy == "the same request again in 250 ms"
