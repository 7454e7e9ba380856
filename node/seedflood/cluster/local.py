"""A cluster on this machine: real daemons as processes on loopback, watched through their logs, as operators do."""

import asyncio
import json
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from seedflood.cluster.display import EXACT_MODE, LoggedNode, Picture, is_sound, understood
from seedflood.cluster.plan import ClusterPlan, make_home, write_settings
from seedflood.cluster.processes import STDOUT_FILE, NodeProcess, start_nodes
from seedflood.errors import ConfigError, ExitCode, SeedfloodError
from seedflood.terminal import Screen

STOP_SECONDS = 15.0
"""How long a process may take to end once it is asked to, and a relay to learn that all hosts have ended."""


class StoppedError(SeedfloodError):
    """The operator ended the cluster before its run was over."""

    exit_code = ExitCode.TRY_AGAIN


def run_cluster(plan: ClusterPlan, folder: Path | None = None) -> dict[str, Any]:
    """Runs the plan to its end. Returns the result as `seedflood local --json` prints it.

    folder: it is kept, with peers.toml, log and state of every node. None: a temporary one, kept only if a node fails,
    and not because of its settings before it trains. Raises SeedfloodError with the exit code of the first node that
    failed.
    """
    home = make_home(folder)
    hosts: list[LoggedNode] = []
    try:
        for node, steps in write_settings(plan, home).items():
            hosts.append(LoggedNode(node.name, node, steps, is_first=not hosts))
        result = asyncio.run(_Cluster(hosts, plan.clients).run())
    except StoppedError:
        raise
    except SeedfloodError as error:
        if any(host.has_trained for host in hosts):
            raise _with_remedy(error, plan, home) from None
        if not isinstance(error, ConfigError):
            raise
        for one in home.iterdir():  # logs say no more than the sentence, and a folder that is used is refused
            shutil.rmtree(one, ignore_errors=True)
        if folder is not None:
            raise
        shutil.rmtree(home, ignore_errors=True)
        raise type(error)(re.sub(rf"{re.escape(str(home))}/(node-1/peers.toml: )?", "", str(error))) from None
    if folder is None and is_sound(result):
        shutil.rmtree(home, ignore_errors=True)
    return result | {"folder": str(home)}


def _with_remedy(error: SeedfloodError, plan: ClusterPlan, home: Path) -> SeedfloodError:
    """The same error, which also says where what was learned lies, and what makes a model of it."""
    first = shlex.quote(str(home / "node-1" / "peers.toml"))
    if plan.overrides.get("run", {}).get("mode", EXACT_MODE) == EXACT_MODE:
        remedy = f"seedflood export --peers {first} --output FOLDER"
    else:
        remedy = f"seedflood-node --peers {first} --set node.export=FOLDER"
    explained = type(error)(
        f"{error} What the nodes have learned is kept in {home}; to make a model of it, run: {remedy}"
    )
    explained.exit_code = error.exit_code
    return explained


class _Cluster:
    """The processes of a plan, started together and ended together."""

    def __init__(self, hosts: list[LoggedNode], clients: int) -> None:
        """clients: how many train; the others, behind them, only relay."""
        self.hosts = hosts
        self._clients = clients
        self._console = Screen(stderr=True)
        self._picture = Picture(hosts, self._console)
        self._began = time.monotonic()
        self._signals = 0
        self._processes: list[NodeProcess] = []

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` wants it
                loop.add_signal_handler(number, self._interrupt, main)
        self._processes, following = await start_nodes([host.folder for host in self.hosts])
        pairs = zip(self.hosts, self._processes, strict=True)
        watching = [asyncio.create_task(self._watch(host, process)) for host, process in pairs]
        showing = asyncio.create_task(self._picture.show())
        try:
            await asyncio.gather(*watching)
        except asyncio.CancelledError:
            first = self.hosts[0].folder
            raise StoppedError(
                f"stopped before the end; logs and state are in {first.parent}. To go on, start all of its nodes: "
                f"seedflood-node --peers {first / 'peers.toml'}, and so on."
            ) from None
        finally:
            await self._stop()
            showing.cancel()
            await asyncio.gather(*watching, showing, following, return_exceptions=True)
        return self._result()

    def _interrupt(self, main: "asyncio.Task[Any] | None") -> None:
        """The first signal ends all hosts gently, any later one at once."""
        self._signals += 1
        if self._signals == 1 and main is not None:
            main.cancel()
        for process in self._processes if self._signals > 1 else ():
            process.send(signal.SIGKILL)

    async def _watch(self, host: LoggedNode, process: NodeProcess) -> None:
        """One node from start to exit. Raises SeedfloodError if it fails."""
        await self._read_log(host, process.log)
        code = await asyncio.shield(process.ended)
        if code != 0:
            why = host.last_words or _how_it_ended(code)
            if code == ExitCode.CONFIG:
                raise ConfigError(why)
            error = SeedfloodError(f"{host.name} failed: {why} (log: {host.folder}/log.jsonl)")
            error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.INTERNAL
            raise error
        if printed := (host.folder / STDOUT_FILE).read_text(encoding="utf-8").strip():
            host.result = json.loads(printed)
            host.phase = "done"
        if all(one.phase == "done" for one in self.hosts[: self._clients]):
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._stop_relays)

    async def _read_log(self, host: LoggedNode, stream: asyncio.StreamReader) -> None:
        with (host.folder / "log.jsonl").open("ab") as log:
            async for line in stream:
                log.write(line)
                log.flush()
                try:
                    facts = json.loads(line)
                except ValueError:
                    facts = {"event": line.decode(errors="replace").strip(), "level": "error"}
                if isinstance(facts, dict):
                    host.learn(facts)
                    if facts.get("event") == "rows read" and host.is_first:
                        self._say(understood(facts))
                    elif host.is_first and _is_of_score(facts):
                        self._say(facts["event"])

    def _say(self, text: str) -> None:
        """What may quote rows, which say what they like."""
        self._console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def _stop_relays(self) -> None:
        """Ends those that wait for hosts though all have ended: these came up when the run was over, as a short one may
        be."""
        for process in self._processes[self._clients :]:
            process.send(signal.SIGTERM)

    async def _stop(self) -> None:
        """Ends the processes that still run: first gently, then by force."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                process.send(number)
            await asyncio.wait([process.ended for process in self._processes], timeout=STOP_SECONDS)

    def _result(self) -> dict[str, Any]:
        results = [host.result for host in self.hosts if host.result is not None]
        if len(results) < len(self.hosts):
            behind = [host for host in self.hosts if host.result is None]
            names = ", ".join(host.name for host in behind)
            raise SeedfloodError(
                f"{names}: no result; was the run too short for it? (log: {behind[0].folder}/log.jsonl)"
            )
        run = _describe_run(results, self.hosts[0].evaluations)
        errors = {host.name: host.last_words for host in self.hosts if host.last_words}
        return run | {"seconds": round(time.monotonic() - self._began, 3), "errors": errors}


def _describe_run(results: list[dict[str, Any]], evaluations: list[dict[str, float]]) -> dict[str, Any]:
    """The run of all nodes as a result. evaluations: of the first node."""
    digests = {result.get("digest") for result in results}
    relays = [result for result in results if result.get("role") == "relay"]
    results = [result for result in results if result.get("role") != "relay"]
    figures = [key for key in results[0] if key.endswith(("_before", "_after"))]
    of_mode = ("evaluated", "digest", "rate_halvings", "control_steps", "consensus_distance", "tokens")
    keys = ("name", "steps", "spent_seconds", *figures, *of_mode, "links")
    run: dict[str, Any] = {
        "run_id": results[0]["run_id"],
        "name": results[0]["run"],
        "mode": results[0]["mode"],
        "seconds": max(result["spent_seconds"] for result in results),
        "digests_equal": len(digests) == 1 and None not in digests,
        "evaluations": evaluations,
        "samples": results[0].get("samples", []),
        "nodes": [{key: result[key] for key in keys if key in result} for result in results],
    }
    if relays:
        run["relays"] = [{key: relay[key] for key in ("name", "updates", "digest", "links")} for relay in relays]
    tokens = sum(result.get("tokens", 0) for result in results)
    if tokens:
        sent = sum(result["parameter_bytes_sent"] for result in results)
        run |= {"tokens_per_second": round(tokens / run["seconds"], 1), "bytes_per_token": round(sent / tokens, 3)}
    return run


def _is_of_score(facts: dict[str, Any]) -> bool:
    """Does a node warn of its score? Who wrote it should know at once."""
    return facts.get("level") == "warning" and str(facts.get("event")).startswith(("score ", "score:"))


def _how_it_ended(code: int) -> str:
    """For a node that reported nothing of its end."""
    if code >= 0:
        return f"it ended with exit code {code}"
    return f"it was ended by {signal.Signals(-code).name}" + (
        " (by hand, or for lack of memory)" if code == -signal.SIGKILL else ""
    )
