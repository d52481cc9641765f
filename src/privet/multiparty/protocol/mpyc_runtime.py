"""MPyC without its manners.

MPyC 0.11 is written as a program's main module. On import it reads ``sys.argv``, sets up logging, exchanges the event
loop's policy and may start processes. A computation stops the event loop when a coroutine of it fails, and it unpickles
the shares of arrays that peers send, so that a peer could run any code here. Here it is loaded quietly, each session
gets a fresh runtime, and the last two are put right while a session lasts.
"""

import asyncio
import importlib
import logging
import os
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECURITY = 40
"""Bits of statistical security where MPyC masks a value instead of hiding it perfectly (its own default is 30)."""

_SETUP = ("asyncoro", "mpctools", "random", "secgroups", "seclists", "secpols", "sectypes", "statistics")
_WIDTH = struct.Struct("<H")

_in_use = False


@contextmanager
def running(index: int, parties: int, failed: Callable[[Exception], None]) -> Iterator[Any]:
    """Yield a fresh runtime, not yet connected, that MPyC's modules use as long as this lasts.

    Parameters
    ----------
    index, parties : int
        Which of how many parties this is.
    failed : callable
        Called with the error if a coroutine of the computation fails.
    """
    if _in_use:
        raise RuntimeError("MPyC keeps one computation in a process: end the other session first")
    mpyc = _loaded()
    runtime = _runtime(mpyc, index, parties)
    with ExitStack() as stack:
        for module, name, value in [
            (sys.modules[__name__], "_in_use", True),
            *((getattr(mpyc, name), "runtime", runtime) for name in _SETUP),
            (mpyc.runtime, "pickle", WholeNumbers),
            (mpyc.runtime, "logging", logging.getLogger("mpyc")),  # the module's own functions set up the root logger
            (mpyc.asyncoro, "_reconcile", _reconciler(mpyc.asyncoro._reconcile, runtime, failed)),
        ]:
            stack.enter_context(_replaced(module, name, value))
        stack.callback(runtime.prfs.cache_clear)  # it would keep the runtime, with its keys
        yield runtime


def pending() -> set["asyncio.Task[Any]"]:
    """Return the coroutines of the computation that have not ended."""
    return {task for task in asyncio.all_tasks() if hasattr(task, "f_back")}  # MPyC marks its own so


async def abandon() -> None:
    """End the coroutines of the computation, without the complaints of what waited for them."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        trace = getattr(context.get("exception"), "__traceback__", None)
        names = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(trace)}
        if "mpyc.asyncoro" not in names:
            loop.default_exception_handler(context) if handler is None else handler(loop, context)

    loop.set_exception_handler(complain)
    tasks = pending()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # for the callbacks of what was cancelled last
    loop.set_exception_handler(handler)


def description() -> str:
    """Return what two parties must have in common for their computations to fit."""
    return f"MPyC {_loaded().__version__}, {sys.hash_info.width} bits"  # it labels messages by Python's hash


class WholeNumbers:
    """What MPyC's runtime gets in the place of pickle: arrays of whole numbers as bytes, and nothing else."""

    @staticmethod
    def dumps(array: Any) -> bytes:
        """Return an array's numbers as bytes, all of one width, after that width."""
        if not isinstance(array, np.ndarray):
            raise TypeError(f"MPyC would pickle a {type(array).__name__}: send bytes by Session.exchange instead")
        numbers = list(map(int, array.ravel().tolist()))
        largest = max(max(numbers, default=0), -min(numbers, default=0))
        width = largest.bit_length() // 8 + 1  # with room for the sign
        return _WIDTH.pack(width) + b"".join([each.to_bytes(width, "little", signed=True) for each in numbers])

    @staticmethod
    def loads(data: bytes) -> NDArray[Any]:
        """Return the numbers in one row. A wrong count is found where the row gets its shape."""
        width = int.from_bytes(data[: _WIDTH.size], "little")
        if len(data) < _WIDTH.size or width == 0 or (len(data) - _WIDTH.size) % width:
            raise ValueError("a peer sent shares that are no row of whole numbers")
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
    loop.set_exception_handler(handler)  # the runtime sets one of its own, for a loop that is all its own
    return runtime


def _reconciler(
    original: Callable[..., None], runtime: Any, failed: Callable[[Exception], None]
) -> Callable[..., None]:
    """Return what is called as a coroutine of the computation ends: it tells of a failure and stops no loop."""

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
    """Return the package MPyC, its runtime imported without side effects."""
    if "mpyc.runtime" not in sys.modules:
        os.environ.setdefault("MPYC_MAXWORKERS", "0")  # MPyC reads it, and would have set it
        root = logging.getLogger()
        handlers = root.handlers[:]
        before = os.environ.get("READTHEDOCS")
        os.environ["READTHEDOCS"] = "True"  # MPyC's own switch for an import that sets nothing up
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # MPyC 0.11 asks for numpy.core
                importlib.import_module("mpyc.runtime")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "several parties compute by MPyC, which is not installed: pip install 'privet[multiparty]'"
            ) from error
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
