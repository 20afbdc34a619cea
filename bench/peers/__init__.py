"""The systems we are measured beside, as a user of each would start it.

Each `Peer` names its packages and how it is started in front of some upstream URLs, with
default settings but for what it takes to reach them. They live in virtual environments of
their own under `var/peers/`, because their pins contradict ours and each other's.
"""

from bench.peers.envoy import ENVOY
from bench.peers.litellm import LITELLM
from bench.peers.peer import Peer, Process
from bench.peers.routers import SGLANG, SMG, VLLM

PEERS: dict[str, Peer] = {peer.name: peer for peer in (ENVOY, VLLM, SGLANG, SMG, LITELLM)}

__all__ = ["PEERS", "Peer", "Process"]
