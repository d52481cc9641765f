"""A session with a single party, in this process: the protocol without a network and without other processes."""

import asyncio

from privet.multiparty.protocol.mpyc_runtime import running
from privet.multiparty.transport.connection import Failure
from privet.multiparty.transport.network import Session


def alone(work):
    """Return what the coroutine function returns for the session of a party that has no peers."""

    async def main():
        failure = Failure()
        with running(0, 1, failure.set) as runtime:
            session = Session(runtime, 10.0, None, failure)
            try:
                return await work(session)
            finally:
                await session.close()

    return asyncio.run(main())
