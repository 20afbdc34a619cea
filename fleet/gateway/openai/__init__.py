"""The OpenAI-compatible data plane: what users of vLLM, SGLang and llama.cpp call already.

`schema` reads as much of a body as scheduling needs and leaves the rest alone; `generation`
is one request under way; `events` watches a stream go by; `answers` speaks for replicas that
do not speak the protocol themselves; `idempotency` joins duplicates. The transport that
talks to upstream servers is `transports/openai.py`.
"""
