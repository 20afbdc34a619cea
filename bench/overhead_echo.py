"""The yardstick: a bare uvicorn application that decodes a JSON body and encodes it again.

`python -m bench.overhead_echo PORT`. What the gateway costs beyond this is what scheduling,
accounting and one upstream call a batch cost.
"""

import sys
from typing import Any

import msgspec
import uvicorn

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Plain ASGI."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    answer = _encode(_decode(body))
    length = str(len(answer)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(
        echo,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
    )
