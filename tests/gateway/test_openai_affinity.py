"""Where requests go that share a session or the beginning of their prompt."""

import asyncio
from typing import Any

import pytest

from tests.gateway.openai_scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ask(scene: Scene, *, session: str | None = None, **more: Any) -> str:
    """The name of the server that answered."""
    headers = more.pop("headers", {}) | ({"x-halcyon-session": session} if session else {})
    answer = await scene.chat(max_tokens=1, extra_headers=headers, **more)
    return str(answer.choices[0].message.content)


async def test_prompts_that_begin_alike_go_to_one_server_and_others_are_spread(
    scene: Scene,
) -> None:
    async def homes(document: int) -> set[str]:
        shared = f"Document {document}. " + "All that follows is about it. " * 30
        return {
            await ask(scene, messages=[{"role": "user", "content": f"{shared} Question {n}?"}])
            for n in range(4)
        }

    found = [await homes(document) for document in range(16)]
    # a server that is slow for a moment is left for it; without affinity two of sixteen would do
    assert sum(len(servers) == 1 for servers in found) >= 14
    assert set.union(*found) == {"a", "b"}


async def test_a_session_leaves_its_server_when_that_would_miss_a_deadline_another_can_meet(
    scene: Scene,
) -> None:
    scene.behave(delay_ms=5)
    home = await ask(scene, session="alice")
    others = [f"user-{n}" for n in range(30)]
    at = await asyncio.gather(*(ask(scene, session=name) for name in others))
    assert set(at) == {"a", "b"}  # both servers' times are known now
    slow = scene.upstreams["ab".index(home)]
    slow.behave(delay_ms=1500)
    neighbours = [name for name, server in zip(others, at, strict=True) if server == home]
    await asyncio.gather(*(ask(scene, session=name) for name in neighbours[:6]))
    tight = {"x-halcyon-deadline-ms": "700"}
    told = [await ask(scene, session="alice", headers=tight) for _ in range(3)]
    assert home not in told
    assert await ask(scene, session="alice") == home
