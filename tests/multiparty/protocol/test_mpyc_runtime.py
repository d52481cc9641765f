"""MPyC's runtime inside a library: the replacement of pickle, and what a session changes and restores."""

import asyncio
import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest

from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.protocol.mpyc_runtime import WholeNumbers, abandon, pending, running


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0],
        [-1],
        [127, -128],
        [128],
        [-300, 1],
        [-(2**64), 2**63],
        [255, 256],
        [2**64, -(2**64)],
        [2**521 - 1, 0, 5],
        [True, 3],
    ],
)
def test_integers_are_restored_exactly(numbers):
    back = WholeNumbers.loads(WholeNumbers.dumps(np.array(numbers, dtype=object)))
    assert back.dtype == object and back.tolist() == numbers
    assert all(type(each) is int for each in back)


def test_gmpy2_integers_of_several_axes_are_restored_as_a_flat_array():
    gmpy2 = pytest.importorskip("gmpy2", reason="MPyC is fast with gmpy2 only: install the extra multiparty")
    array = np.array([[gmpy2.mpz(2**80), gmpy2.mpz(1)], [gmpy2.mpz(2), gmpy2.mpz(3)]], dtype=object)
    assert WholeNumbers.loads(WholeNumbers.dumps(array)).tolist() == [2**80, 1, 2, 3]


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x00\x00", b"\x00\x00ab", b"\x02\x00abc", pickle.dumps([1, 2])])
def test_bytes_that_are_not_integers_are_refused(data):
    with pytest.raises(ValueError, match="not integers of one width"):
        WholeNumbers.loads(data)


@pytest.mark.parametrize("thing", [3, "text", [1, 2], {"a": 1}, None])
def test_only_arrays_can_be_sent(thing):
    with pytest.raises(TypeError, match=r"Session\.exchange"):
        WholeNumbers.dumps(thing)


@pytest.mark.parametrize(
    ("numbers", "size"), [([], 1), ([127, -127], 1), ([128], 2), ([-128], 2), ([2**15 - 1], 2), ([2**15], 3)]
)
def test_numbers_are_sent_with_the_bytes_that_the_largest_needs(numbers, size):
    data = WholeNumbers.dumps(np.array(numbers, dtype=object))
    assert len(data) == 2 + size * len(numbers)
    assert int.from_bytes(data[:2], "little") == size


# ------------------------------------------------------------------------------------------------------------ a session


pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")


def in_loop(work):
    async def main():
        return await work()

    return asyncio.run(main())


@pytest.mark.parametrize(("parties", "threshold"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_fewer_than_half_of_the_parties_may_combine_their_shares(parties, threshold):
    async def work():
        with running(parties - 1, parties, lambda error: None) as runtime:
            assert (runtime.pid, len(runtime.parties), runtime.threshold) == (parties - 1, parties, threshold)
            assert runtime.options.sec_param == 40
            assert runtime.options.no_log

    in_loop(work)


def test_modules_are_restored_and_one_session_runs_at_a_time():
    mpyc = mpyc_runtime._loaded()
    modules = [getattr(mpyc, name) for name in mpyc_runtime._SETUP]
    before = [module.runtime for module in modules], mpyc.runtime.pickle, mpyc.runtime.logging, mpyc.asyncoro._reconcile

    async def work():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handler := lambda loop, context: None)
        with pytest.raises(ZeroDivisionError), running(0, 1, lambda error: None) as runtime:
            assert all(module.runtime is runtime for module in modules)
            assert mpyc.runtime.pickle is WholeNumbers
            assert mpyc.runtime.logging is logging.getLogger("mpyc")
            assert mpyc.asyncoro._reconcile is not before[-1]
            assert loop.get_exception_handler() is handler
            with pytest.raises(RuntimeError, match="one computation per process"), running(0, 1, lambda error: None):
                pass
            runtime.prfs(2)  # fills a cache that would keep the keys
            raise ZeroDivisionError
        assert runtime.prfs.cache_info().currsize == 0
        with running(0, 1, lambda error: None) as another:
            assert another is not runtime

    in_loop(work)
    after = [module.runtime for module in modules], mpyc.runtime.pickle, mpyc.runtime.logging, mpyc.asyncoro._reconcile
    assert after == before


def test_a_failing_coroutine_is_reported_and_does_not_stop_the_loop():
    failures = []

    async def work():
        with running(0, 1, failures.append) as runtime:
            level = runtime._pc_level
            coroutine = mpyc_runtime._loaded().asyncoro.mpc_coro
            secret = runtime.SecInt(16)

            @coroutine
            async def fails(number):
                await runtime.returnType(secret)
                await runtime.gather(number)
                await asyncio.sleep(0)
                raise ArithmeticError("wrong shares")

            @coroutine
            async def succeeds(number):
                await runtime.returnType(secret)
                await asyncio.sleep(0)
                return await runtime.gather(number)

            runtime.options.no_async = False
            good, _ = succeeds(secret(5)), fails(secret(3))
            assert len(pending()) == 2
            while pending():
                await asyncio.sleep(0.001)
            assert int(await runtime.output(good)) == 5
            assert runtime._pc_level == level

    in_loop(work)
    assert [str(error) for error in failures] == ["wrong shares"]


def test_abandoned_coroutines_are_cancelled_without_reports():
    failures, reports = [], []

    async def work():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handler := lambda loop, context: reports.append(context["message"]))
        with running(0, 1, failures.append) as runtime:
            runtime.options.no_async = False
            secret = runtime.SecInt(16)

            @mpyc_runtime._loaded().asyncoro.mpc_coro
            async def waits(number):
                await runtime.returnType(secret)
                await asyncio.get_running_loop().create_future()
                return number

            level = runtime._pc_level
            waits(secret(3))
            other = asyncio.create_task(asyncio.sleep(0.01))
            assert len(pending()) == 1
            await abandon()
            assert not pending()
            assert runtime._pc_level == level
            assert loop.get_exception_handler() is handler
            await other  # only MPyC's coroutines are cancelled

    in_loop(work)
    assert failures == reports == []


def test_errors_of_other_code_are_reported_while_a_computation_is_abandoned():
    """Those of MPyC are not: they follow from the cancellation."""
    reports, names = [], {"__name__": "mpyc.asyncoro"}
    exec("def fails():\n    raise ArithmeticError('of a cancelled computation')", names)

    def other():
        raise ArithmeticError("of other code")

    async def work():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reports.append(str(context.get("exception"))))
        with running(0, 1, lambda error: None):
            loop.call_soon(names["fails"])
            loop.call_soon(other)
            loop.call_soon(loop.call_exception_handler, {"message": "without an exception"})
            await abandon()
            loop.call_soon(names["fails"])
            await asyncio.sleep(0)

    in_loop(work)
    assert reports == ["of other code", "None", "of a cancelled computation"]


IMPORTING = """
import importlib.util, logging, os, sys
sys.argv = ["program", "-M3"]  # MPyC would start three processes
for given in ({}, {"READTHEDOCS": "False"}):
    for name in [name for name in sys.modules if name.split(".")[0] == "mpyc"]:
        del sys.modules[name]
    os.environ.pop("MPYC_MAXWORKERS", None)
    os.environ.pop("READTHEDOCS", None)
    os.environ.update(given)
    before = dict(os.environ)
    specification = importlib.util.spec_from_file_location("mpyc_runtime", sys.orig_argv[-1])
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module._loaded() is sys.modules["mpyc"] and "mpyc.runtime" in sys.modules
    assert sys.argv == ["program", "-M3"] and not logging.getLogger().handlers
    print({name for name in os.environ.keys() | before.keys() if os.environ.get(name) != before.get(name)})
"""


def test_importing_mpyc_changes_neither_the_environment_nor_the_log():
    """Only MPyC's own setting of its worker threads is added. The module is loaded by itself, which takes less time."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, mpyc_runtime.__file__],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["{'MPYC_MAXWORKERS'}"] * 2, done.stderr
