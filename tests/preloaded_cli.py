"""Real processes of the command line without a second of imports each: a server imports once, and forks per command.

``PreloadedCommandLine()(*arguments, cwd=...)`` runs a command in a forked process, and returns what it printed and its
exit code. Run as a program, this file is the server: it reads one request per line and answers with one exit code.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


class PreloadedCommandLine:
    """A server process, and the commands that it runs."""

    def __init__(self) -> None:
        self._server = subprocess.Popen([sys.executable, __file__], stdin=-1, stdout=-1, text=True)

    def __call__(self, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``privet`` with these arguments."""
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, name)) for name in ("out", "err")]
            command = ["privet", *map(str, arguments)]
            self._server.stdin.write(json.dumps([command, str(cwd or Path.cwd()), *files]) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(command, code, *(Path(file).read_text() for file in files))

    def close(self) -> None:
        """End the server."""
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


def serve() -> None:
    """Fork a process per request, and print its exit code."""
    import privet.commands.fit
    import privet.commands.ledger
    import privet.commands.plan
    import privet.commands.predict
    import privet.linear  # noqa: F401
    from privet.cli import main

    os.environ["COLUMNS"] = "200"
    for line in sys.stdin:
        command, folder, out, err = json.loads(line)
        child = os.fork()
        if child == 0:
            for file, number in ((out, 1), (err, 2)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
            os.chdir(folder)
            sys.argv = command
            os._exit(exit_code(main))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def exit_code(work) -> int:
    """Do the work, and return the exit code that the interpreter would give."""
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve()
