"""Servers of a study as processes of this machine, for experiments with many owners."""

import asyncio
import multiprocessing
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from privet.multiparty.protocol import roles
from privet.multiparty.study import Study

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Servers:
    """Running servers, and where they send what they computed."""

    processes: list[BaseProcess]
    results: list[Connection]

    def answers(self) -> list[Any]:
        """Return what each server sends next."""
        return [each.recv() for each in self.results]

    async def while_alive(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of the work, or raise as soon as a server has failed."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=1.0)
            if any(each.exitcode for each in self.processes):
                task.cancel()
                raise RuntimeError("A server has failed. Its message is above.")
        return task.result()


@contextmanager
def serving(study: Study, keys: Path, patience: float) -> Iterator[Servers]:
    """Run the servers of a study during a ``with`` block, which begins when they are connected with each other."""
    context = multiprocessing.get_context("forkserver")
    servers = Servers([], [])
    try:
        for index in range(len(study.servers)):
            here, there = context.Pipe(duplex=False)
            arguments = (study.to_dict(), keys, index, patience, there)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            there.close()  # so that a server that ends early is noticed
            servers.processes.append(process)
            servers.results.append(here)
        servers.answers()
        yield servers
    finally:
        for process in servers.processes:
            process.kill()


def serve(values: dict[str, Any], keys: Path, index: int, patience: float, results: Connection) -> None:
    """Run one server in this process. Send when it is connected, and then what it computed and what it cost."""
    study = Study.from_dict(values)

    async def work() -> dict[str, Any]:
        network = roles.network_of(study, index, keys, connect_timeout=120, timeout=patience)
        async with network.connect() as session:
            results.send("connected")
            release = await roles.serve(session, study, keys=keys, patience=patience)
            return {
                "end": time.monotonic(),
                "bytes_sent": session.bytes_sent,
                "owners": len(release.trace["counts"]),
                "weights": release.weights,
            }

    results.send(asyncio.run(work()))
