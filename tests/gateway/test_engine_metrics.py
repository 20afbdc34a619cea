"""What inference servers say of themselves, and what follows for routing."""

import pytest

from fleet.gateway.engine_metrics import EngineLoad, read_page
from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import Door, set_scene

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 4.0
vllm:num_requests_running{engine="1",model_name="a} b"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 9.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 100.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.75
"""


def test_engines_of_one_server_add_up_and_the_fullest_cache_counts() -> None:
    assert read_page(VLLM) == EngineLoad(running=7, waiting=9, cache_ratio=0.75)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"# HELP vllm:num_requests_waiting text\n",
        b"other_vllm:num_requests_waiting 3\n",
        b'vllm:num_requests_waiting{a="b"} NaN\n',
        b'vllm:num_requests_waiting{a="b"}',
        b"\xff\xfe\x00",
    ],
)
def test_what_a_page_does_not_say_is_absent_and_not_zero(page: bytes) -> None:
    assert read_page(page) == EngineLoad(running=None, waiting=None, cache_ratio=None)


def test_the_names_of_other_servers_and_of_old_ones_are_known() -> None:
    old = b"vllm:gpu_cache_usage_perc 0.5\nvllm:num_requests_waiting 2 1700000000000\n"
    assert read_page(old) == EngineLoad(running=None, waiting=2, cache_ratio=0.5)
    sglang = b'sglang:num_queue_reqs{m="x"} 5\nsglang:token_usage{m="x"} 0.1\n'
    assert read_page(sglang) == EngineLoad(running=None, waiting=5, cache_ratio=0.1)
    llama = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 6\n"
    assert read_page(llama) == EngineLoad(running=1, waiting=6, cache_ratio=None)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_server_with_a_queue_inside_gets_no_traffic_while_another_has_none(
    door: Door,
) -> None:
    """Others use it too: this gateway's own counts cannot know."""
    crowded, quiet = {"waiting": 40, "cache_ratio": 0.9}, {"waiting": 0, "cache_ratio": 0.1}
    async with set_scene(door, scripts=(crowded, quiet)) as scene:
        for number in range(8):  # both are measured
            await scene.chat(extra_headers={"x-halcyon-session": f"s{number}"}, max_tokens=1)

        async def both_read() -> bool:
            health = [each["health"].get("memory") for each in await scene.replicas()]
            return len(health) == 2 and None not in health

        await until(both_read, 10.0, "both pages read")
        before = [upstream.stats["requests"] for upstream in scene.upstreams]
        for number in range(40):
            question = [{"role": "user", "content": f"question {number}"}]
            await scene.chat(messages=question, max_tokens=1)
        after = [upstream.stats["requests"] for upstream in scene.upstreams]
        assert after[0] - before[0] <= 8
        assert after[1] - before[1] >= 32
