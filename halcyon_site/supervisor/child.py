"""One process under supervision: started, watched, restarted with patience, stopped.

It runs in a session of its own, so that Ctrl-C in the terminal reaches the supervisor only
and the order of stopping is the supervisor's. Its output goes to `var/log/<name>.log`.
A process that dies is started again after 0.5 s, doubling to 30 s; one that lived for a
minute is forgiven what was before.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import aiohttp

from halcyon_site.supervisor.plan import Plan

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
FORGIVEN_AFTER_S = 60.0
ASK_EVERY_S = 0.1
ASK_TIMEOUT_S = 1.0


class Child:
    """See the module. `state` is starting, ready, restarting or stopped."""

    def __init__(self, plan: Plan, log_dir: Path) -> None:
        self.plan = plan
        self.log = log_dir / f"{plan.name.replace('/', '_')}.log"
        self.state = "stopped"
        self.restarts = 0
        self.ready_once = asyncio.Event()
        self.exit_code: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._started_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        alive = self._process is not None and self._process.returncode is None
        return self._process.pid if alive and self._process is not None else None

    @property
    def uptime_s(self) -> float | None:
        return time.monotonic() - self._started_s if self.pid else None

    def start(self) -> None:
        self._task = asyncio.create_task(self._live(), name=f"child-{self.plan.name}")

    async def stop(self) -> None:
        """Ask, wait, insist. The log keeps what it had to say."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(self.plan.stop_s):
                    await process.wait()
            except TimeoutError:
                self._kill_group(process.pid)
                await process.wait()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.state = "stopped"

    async def _live(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping:
            self.state = "starting" if not self.restarts else "restarting"
            self._process = await self._spawn()
            self._started_s = time.monotonic()
            asking = asyncio.create_task(self._until_ready())
            try:
                self.exit_code = await self._process.wait()
            finally:
                asking.cancel()
            if self._stopping:
                return
            self.state = "restarting"
            self.restarts += 1
            if time.monotonic() - self._started_s > FORGIVEN_AFTER_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *self.plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.plan.environment},
                start_new_session=True,
            )

    async def _until_ready(self) -> None:
        url = self.plan.ready_url
        if url is not None:
            timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT_S)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while not await _answers(session, url):
                    await asyncio.sleep(ASK_EVERY_S)
        self.state = "ready"
        self.ready_once.set()

    def _kill_group(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def last_words(self, lines: int = 5) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
