"""The LLM routers written in Rust: vllm-router, sglang-router and smg."""

from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import Peer


def _vllm(bin_: Path, port: int, upstreams: Sequence[str], folder: Path) -> list[str]:
    return [
        str(bin_ / "vllm-router"), "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *upstreams, "--log-level", "error",
        "--prometheus-port", str(port + 1000),
    ]  # fmt: skip


def _sglang(name: str, bin_: Path, port: int, upstreams: Sequence[str]) -> list[str]:
    return [
        str(bin_ / name), "launch", "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *upstreams, "--log-level", "error",
        "--prometheus-port", str(port + 1000),
    ]  # fmt: skip


VLLM = Peer(name="vllm-router", packages=["vllm-router"], command=_vllm)
SGLANG = Peer(
    name="sglang-router",
    packages=["sglang-router"],
    command=lambda bin_, port, upstreams, _: _sglang("sglang-router", bin_, port, upstreams),
)
SMG = Peer(
    name="smg",
    packages=["smg"],
    command=lambda bin_, port, upstreams, _: _sglang("smg", bin_, port, upstreams),
)
