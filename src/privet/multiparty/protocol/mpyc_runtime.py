"""MPyC's runtime, made safe for use inside a library.

MPyC 0.11 is written as the main module of a program. On import it reads ``sys.argv``, configures logging, replaces the
event loop policy and may start processes. A computation stops the event loop when one of its coroutines fails. It also
unpickles the shares of arrays that peers send, so a peer could run arbitrary code. This module imports MPyC without
side effects, creates a fresh runtime per session, and replaces the last two behaviours for the duration of a session.
"""

import asyncio
import importlib
import logging
import os
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.extras import remedy
from privet.multiparty.protocol.joint_randomness import JointRandomness
from privet.multiparty.protocol.prime_field import LARGEST
from privet.privacy.noise.source import NoiseSource

SECURITY = 40
"""Bits of statistical security where MPyC masks a value instead of hiding it perfectly (MPyC's default is 30)."""

_SETUP = ("asyncoro", "mpctools", "random", "secgroups", "seclists", "secpols", "sectypes", "statistics")
_WIDTH = struct.Struct("<H")

_in_use = False


@contextmanager
def running(index: int, parties: int, failed: Callable[[Exception], None]) -> Iterator[Any]:
    """Yield a fresh runtime, not connected yet, which MPyC's modules use inside the ``with`` block.

    Parameters
    ----------
    index, parties : int
        Index of this party, and the number of parties.
    failed : callable
        Called with the error if a coroutine of the computation fails.
    """
    if _in_use:
        raise RuntimeError("MPyC allows one computation per process. End the other session first.")
    mpyc = _loaded()
    runtime = _runtime(mpyc, index, parties)
    with ExitStack() as stack:
        for module, name, value in [
            (sys.modules[__name__], "_in_use", True),
            *((getattr(mpyc, name), "runtime", runtime) for name in _SETUP),
            (mpyc.runtime, "pickle", WholeNumbers),
            (
                mpyc.runtime,
                "logging",
                logging.getLogger("mpyc"),
            ),  # MPyC's own functions would configure the root logger.
            (mpyc.asyncoro, "_reconcile", _reconciler(mpyc.asyncoro._reconcile, runtime, failed)),
        ]:
            stack.enter_context(_replaced(module, name, value))
        stack.callback(runtime.prfs.cache_clear)  # The cache would keep the runtime and its keys alive.
        yield runtime


def pending() -> set["asyncio.Task[Any]"]:
    """Return the unfinished coroutines of the computation."""
    return {
        task for task in asyncio.all_tasks() if hasattr(task, "f_back")
    }  # MPyC sets this attribute on its own tasks.


async def abandon() -> None:
    """Cancel the coroutines of the computation, without error messages from those that waited for them."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        trace = getattr(context.get("exception"), "__traceback__", None)
        names = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(trace)}
        if "mpyc.asyncoro" not in names:
            loop.default_exception_handler(context) if handler is None else handler(loop, context)

    loop.set_exception_handler(report)
    tasks = pending()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # Let the callbacks of the cancelled tasks run.
    loop.set_exception_handler(handler)


def description() -> str:
    """Return the properties that must be equal at two parties for their computations to be compatible."""
    return f"MPyC {_loaded().__version__}, {sys.hash_info.width} bits"  # MPyC labels messages with Python's hash().


class WholeNumbers:
    """Replacement of the ``pickle`` module in MPyC's runtime. It converts arrays of integers, and nothing else."""

    @staticmethod
    def dumps(array: Any) -> bytes:
        """Return the integers of an array as bytes: first their common width, then each with that width."""
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"A {type(array).__name__} cannot be sent through MPyC. Send bytes with Session.exchange instead."
            )
        numbers = list(map(int, array.ravel().tolist()))
        largest = max(max(numbers, default=0), -min(numbers, default=0))
        width = largest.bit_length() // 8 + 1  # including room for the sign
        return _WIDTH.pack(width) + b"".join([each.to_bytes(width, "little", signed=True) for each in numbers])

    @staticmethod
    def loads(data: bytes) -> NDArray[Any]:
        """Return the integers as a flat array. A wrong number of them is noticed when MPyC reshapes the array."""
        width = int.from_bytes(data[: _WIDTH.size], "little")
        if len(data) < _WIDTH.size or width == 0 or (len(data) - _WIDTH.size) % width:
            raise ValueError("A peer sent shares that are not integers of one width.")
        places = range(_WIDTH.size, len(data), width)
        read = int.from_bytes
        return np.fromiter((read(data[i : i + width], "little", signed=True) for i in places), object, len(places))


def _runtime(mpyc: Any, index: int, parties: int) -> Any:
    options = mpyc._get_arg_parser().parse_args([])
    options.threshold = (parties - 1) // 2
    options.sec_param = SECURITY
    options.no_log = True
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    runtime = mpyc.runtime.Runtime(index, [mpyc.runtime.Party(each) for each in range(parties)], options)
    runtime.source = NoiseSource(purpose="joint random bits")
    runtime.np_random_bits = partial(_random_bits, mpyc, runtime, runtime.np_random_bits)
    loop.set_exception_handler(handler)  # The runtime installs its own handler, as if it owned the loop.
    return runtime


def _random_bits(mpyc: Any, runtime: Any, original: Any, kind: Any, size: int, signed: bool = False) -> Any:
    """Return secret random bits, like MPyC's function of this name, which becomes slow with many parties."""
    field = kind.field if issubclass(kind, runtime.SecureObject) else kind
    prime, parties = int(field.modulus), len(runtime.parties)
    if parties < 3 or signed or not size or kind is field or kind.frac_length or prime % 4 != 3 or prime >= LARGEST:
        return original(kind, size, signed)

    async def swap(messages: Sequence[bytes]) -> list[bytes]:
        runtime._program_counter[0] += 1  # It labels the messages.
        for peer in range(parties):
            if peer != runtime.pid:
                runtime._send_message(peer, messages[peer])
        received = [None if peer == runtime.pid else runtime._receive_message(peer) for peer in range(parties)]
        return [messages[runtime.pid] if each is None else each for each in await runtime.gather(received)]

    async def drawn() -> Any:
        await runtime.returnType((kind.array, True, (size,)))
        joint = JointRandomness(swap, runtime.source, runtime.pid, parties, runtime.threshold, prime)
        return field.array((await joint.bits(size)).astype(object), check=False)

    # MPyC would take an annotation of the result for its own.
    return mpyc.asyncoro.mpc_coro(lambda: drawn())()  # noqa: PLW0108


def _reconciler(
    original: Callable[..., None], runtime: Any, failed: Callable[[Exception], None]
) -> Callable[..., None]:
    """Return the callback for finished coroutines. It reports a failure instead of stopping the event loop."""

    def reconcile(placeholder: Any, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            original(placeholder, task)
            return
        runtime._pc_level -= 1
        if isinstance(error, Exception):
            failed(error)

    return reconcile


def _loaded() -> Any:
    """Return the package MPyC, after importing its runtime without side effects."""
    if "mpyc.runtime" not in sys.modules:
        os.environ.setdefault("MPYC_MAXWORKERS", "0")  # MPyC reads this variable, and would set it otherwise.
        root = logging.getLogger()
        handlers = root.handlers[:]
        before = os.environ.get("READTHEDOCS")
        os.environ["READTHEDOCS"] = "True"  # This makes MPyC skip its setup on import.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # MPyC 0.11 uses numpy.core.
                importlib.import_module("mpyc.runtime")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "mpyc":
                raise
            raise ModuleNotFoundError(f"Multi-party computations need MPyC. {remedy('mpyc')}", name="mpyc") from error
        finally:
            root.handlers[:] = handlers
            if before is None:
                del os.environ["READTHEDOCS"]
            else:
                os.environ["READTHEDOCS"] = before
    return sys.modules["mpyc"]


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
