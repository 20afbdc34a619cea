"""The knobs of everything that is known per replica, in one hand."""

from dataclasses import dataclass, field

from engine.routing.backpressure import BackpressureConfig
from engine.routing.breaker import BreakerConfig
from engine.routing.ceiling import CeilingConfig
from engine.routing.health import HealthConfig
from engine.routing.panic import PanicConfig
from engine.routing.peak_ewma import PeakEwmaConfig
from engine.routing.slow_start import SlowStartConfig


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplicaConfig:
    """Each part's own config, with its defaults."""

    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    latency: PeakEwmaConfig = field(default_factory=PeakEwmaConfig)
    backpressure: BackpressureConfig = field(default_factory=BackpressureConfig)
    slow_start: SlowStartConfig = field(default_factory=SlowStartConfig)
    ceiling: CeilingConfig = field(default_factory=CeilingConfig)
    panic: PanicConfig = field(default_factory=PanicConfig)
    health: HealthConfig = field(default_factory=HealthConfig)


DEFAULT_CONFIG = ReplicaConfig()
