"""LiteLLM's proxy with one worker, the upstreams as deployments of one model."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.peers.peer import Peer


def _command(bin_: Path, port: int, upstreams: Sequence[str], folder: Path) -> list[str]:
    config = folder / "litellm.yaml"
    deployments = [
        {
            "model_name": "tiny",
            "litellm_params": {
                "model": "openai/tiny",
                "api_base": f"{url}/v1",
                "api_key": "none",
            },
        }
        for url in upstreams
    ]
    config.write_text(yaml.safe_dump({"model_list": deployments}))
    return [
        str(bin_ / "litellm"),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
        "--telemetry",
        "False",
    ]


LITELLM = Peer(
    name="litellm",
    packages=["litellm[proxy]"],
    command=_command,
    ready_path="/health/liveliness",
    env={
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    },
)
