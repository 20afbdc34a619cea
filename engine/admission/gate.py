"""The gate: one request, may it come in?

    reservation = gate.reserve(tenant, tokens, now_ms)               the tenant's own limits
    ... feasibility, by whoever knows the queues ...                 reservation.give_back
    permit = gate.admit(reservation, model, priority, now_ms)        the model's limit
    permit.succeed | permit.ignore | permit.drop

Each step answers with what it took or with a `Refusal`, and a refusal at any step returns
what the earlier ones took. A request that is turned away costs no quota.

Where no tenant is configured at all, everyone shares one account without limits: a lone
gateway on a laptop needs no ceremony. As soon as one is, a name that nobody configured is
forbidden.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter

from engine.admission.account import Account, Bucket, BucketFactory, PlacesFactory
from engine.admission.gradient_limit import GradientConfig, GradientLimit
from engine.admission.headroom_limit import HeadroomConfig, HeadroomLimit
from engine.admission.limit import Limit
from engine.admission.occupancy import Occupancy
from engine.admission.permit import Permit, Reservation
from engine.admission.token_bucket import TokenBucket
from engine.errors import BrokenInvariant, Refusal, RefusalCode
from engine.types import ModelSpec, TenantSpec
from engine.view import AdmissionView, TenantView

MOST_TENANTS_SHOWN = 200
_WORTH_A_LOOK = 0.5  # of a limit in use
_BUSIEST = attrgetter("in_flight", "requests_taken")


class LimitPolicy(StrEnum):
    """How the number in flight is bounded."""

    HEADROOM = "headroom"
    GRADIENT = "gradient"


# A limit of one's own for a model's SLO: how benchmarks bring their comparison policies.
LimitFactory = Callable[[float], Limit]


@dataclass(slots=True, frozen=True, kw_only=True)
class GateConfig:
    """Which policy bounds the number in flight, with its knobs."""

    policy: LimitPolicy = LimitPolicy.HEADROOM
    headroom: HeadroomConfig = field(default_factory=HeadroomConfig)
    gradient: GradientConfig = field(default_factory=GradientConfig)
    limit_factory: LimitFactory | None = None
    bucket_factory: BucketFactory | None = None
    places_factory: PlacesFactory | None = None

    def make_limit(self, slo_ms: float) -> Limit:
        if self.limit_factory is not None:
            return self.limit_factory(slo_ms)
        if self.policy is LimitPolicy.GRADIENT:
            return GradientLimit(slo_ms, self.gradient)
        return HeadroomLimit(slo_ms, self.headroom)


def _local_bucket(tenant: str, kind: str, rate_per_s: float, burst: float, now_ms: float) -> Bucket:
    return TokenBucket(rate_per_s, burst, now_ms)


class Gate:
    """The tenants' accounts and the models' limits."""

    __slots__ = ("_accounts", "_anyone", "_config", "_make_bucket", "_models", "_tenants")

    def __init__(self, config: GateConfig | None = None, now_ms: float = 0.0) -> None:
        self._config = config or GateConfig()
        self._make_bucket = self._config.bucket_factory or _local_bucket
        self._tenants: Mapping[str, TenantSpec] = {}
        self._accounts: dict[str, Account] = {}  # of those who ever asked
        self._models: dict[str, Occupancy] = {}
        self._anyone = Account(TenantSpec(tenant="*"), self._make_bucket, now_ms)

    def set_tenants(self, tenants: Mapping[str, TenantSpec], now_ms: float) -> None:
        """Replace the tenants. Those that stay keep their levels and their requests in flight.

        An account is opened when its tenant first asks: ten thousand tenants cost nothing
        here until they come.
        """
        self._tenants = tenants
        for name, account in list(self._accounts.items()):
            spec = tenants.get(name)
            if spec is None:
                del self._accounts[name]
            elif account.spec is not spec and account.spec != spec:
                account.configure(spec, self._make_bucket, now_ms)

    def set_models(self, models: Mapping[str, ModelSpec], now_ms: float) -> None:
        """Replace the models. Those that stay keep what their limit has learned."""
        occupancies: dict[str, Occupancy] = {}
        for name, spec in models.items():
            occupancy = self._models.get(name)
            if occupancy is None:
                occupancy = Occupancy(name, self._config.make_limit(spec.slo_ms), now_ms)
            occupancy.limit.slo_ms = spec.slo_ms
            occupancies[name] = occupancy
        self._models = occupancies

    def expect(
        self,
        model: str,
        requests_per_s: float | None,
        places: int,
        batch_size: int,
        now_ms: float,
    ) -> None:
        """The fleet behind `model` changed: what it holds at once, and should now manage."""
        occupancy = self._models.get(model)
        if occupancy is not None:
            occupancy.expect(requests_per_s, places, batch_size, now_ms)

    def reserve(self, tenant: str, tokens: int, now_ms: float) -> Reservation | Refusal:
        """Reserve one request of `tokens` from the tenant's limits."""
        account = self._accounts.get(tenant) or self._open(tenant, now_ms)
        if account is None:
            return _unknown_tenant(tenant)
        refusal = account.take(tokens, now_ms)
        return Reservation(account, tokens) if refusal is None else refusal

    def admit(
        self, reservation: Reservation, model: str, priority: int, now_ms: float
    ) -> Permit | Refusal:
        """Turn a reservation into a place in flight, or give it back and say why not."""
        if not reservation.open:
            raise BrokenInvariant("this reservation was given back or admitted already")
        occupancy = self._models.get(model)
        if occupancy is None:
            reservation.give_back(now_ms)
            return _unknown_model(model)
        if occupancy.enter(priority, now_ms):
            reservation.open = False
            return Permit(reservation.account, reservation.tokens, occupancy, priority)
        reservation.give_back(now_ms)
        refusal = occupancy.refusal(priority)
        reservation.account.note_refusal(refusal.code)
        return refusal

    def would_refuse(
        self, tenant: str, tokens: int, model: str, priority: int, now_ms: float
    ) -> Refusal | None:
        """What `reserve` and `admit` would say now, taking nothing."""
        account = self._accounts.get(tenant) or self._open(tenant, now_ms)
        if account is None:
            return _unknown_tenant(tenant)
        refusal = account.would_refuse(tokens, now_ms)
        if refusal is not None:
            return refusal
        occupancy = self._models.get(model)
        if occupancy is None:
            return _unknown_model(model)
        full = occupancy.in_flight >= occupancy.ceilings[priority]
        return occupancy.refusal(priority) if full else None

    def in_flight(self, model: str) -> int:
        """How many requests for `model` hold a permit."""
        occupancy = self._models.get(model)
        return 0 if occupancy is None else occupancy.in_flight

    def limit(self, model: str) -> Limit | None:
        """The limit of `model`, for those who show it or record it."""
        occupancy = self._models.get(model)
        return None if occupancy is None else occupancy.limit

    def tenant_in_flight(self, tenant: str) -> int:
        """How many requests of `tenant` hold a reservation or a permit."""
        account = self._accounts.get(tenant)
        return 0 if account is None else account.in_flight

    def tenant_views(self, now_ms: float) -> list[TenantView]:
        """The tenants' use, for the dashboard; of very many, those with most in flight and
        most requests so far: the view is made once a second on the loop that serves."""
        if not self._tenants:
            return [self._anyone.view(now_ms)]
        if len(self._tenants) <= MOST_TENANTS_SHOWN:
            for name in self._tenants:
                self._open(name, now_ms)
        accounts = list(self._accounts.values())
        if len(accounts) > MOST_TENANTS_SHOWN:
            accounts = heapq.nlargest(MOST_TENANTS_SHOWN, accounts, key=_BUSIEST)
        return [account.view(now_ms) for account in accounts]

    def _open(self, tenant: str, now_ms: float) -> Account | None:
        """The account of a tenant, opened if this is its first time; None if it is unknown."""
        account = self._accounts.get(tenant)
        if account is not None:
            return account
        if not self._tenants:
            return self._anyone
        spec = self._tenants.get(tenant)
        if spec is None:
            return None
        account = self._accounts[tenant] = Account(
            spec, self._make_bucket, now_ms, self._config.places_factory
        )
        return account

    def view(self, now_ms: float) -> AdmissionView:
        """The limit nearest to its ceiling: the one an operator should look at first. Where none
        is half used it is always the same one, or a quiet fleet would show another every second.
        """
        views = self.model_views(now_ms).values()
        if views:
            return max(views, key=_pressed)
        return {
            "policy": self._config.policy.value,
            "limit": 0.0,
            "inFlight": 0,
            "sloMs": 0.0,
            "p95Ms": None,
            "reason": "no model is configured",
        }

    def model_views(self, now_ms: float) -> dict[str, AdmissionView]:
        """The state of every model's limit."""
        return {name: occupancy.view(now_ms) for name, occupancy in self._models.items()}


def _pressed(view: AdmissionView) -> float:
    used = view["inFlight"] / view["limit"]
    return used if used >= _WORTH_A_LOOK else 0.0


def _unknown_tenant(tenant: str) -> Refusal:
    return Refusal(
        code=RefusalCode.FORBIDDEN,
        message=f"no tenant named {tenant!r}: create it, or correct the spelling",
        limit_name="tenant",
        limit=0.0,
        used=0.0,
    )


def _unknown_model(model: str) -> Refusal:
    return Refusal(
        code=RefusalCode.MODEL_NOT_FOUND,
        message=f"no model named {model!r}: register it, or correct the spelling",
        limit_name="model",
    )
