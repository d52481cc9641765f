"""What a server of a committee keeps on its disk, so that it can continue after a restart without a second release.

For each release it keeps its share of the noisy sum, from before the share is sent. This is not private towards the
other servers, which receive it, but the files are readable by their owner only. Shares of owners are never written.
"""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from privet.multiparty.protocol.sharing import Share


@dataclass(frozen=True)
class Masked:
    """A server's share of a noisy sum, the rows of each owner who took part, and who was left out for its norm."""

    share: Share
    counts: dict[int, int]
    left_out: tuple[int, ...] = ()
    is_sent: bool = False


class ServerState:
    """The releases of one server of a study, in memory and, if there is a folder, on disk.

    Parameters
    ----------
    folder : path or None
        Where to keep them. None keeps them in memory only: the study cannot continue after a restart.
    digest : str
        Digest of the study, and which of its servers this is. A folder that belongs to another one is refused.
    """

    def __init__(self, folder: Path | None, digest: str) -> None:
        self._folder, self._kept = folder, dict[int, Masked]()
        self.is_booked = False
        if folder is None:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder / "study.json"
        if about.exists() and json.loads(about.read_text())["digest"] != digest:
            raise ValueError(
                f"{folder} belongs to another study or server. Choose another folder for the state of this server."
            )
        if not about.exists():  # It is never empty, also if the process is killed or the disk is full.
            part = about.with_suffix(".part")
            _write(part, json.dumps({"digest": digest}).encode())
            part.replace(about)
            _sync_folder(folder)
        self.is_booked = (folder / "booked").exists()

    def masked(self, number: int) -> Masked | None:
        """Return the share of a release that was stored before, or None."""
        if number in self._kept or self._folder is None:
            return self._kept.get(number)
        path = self._path(number)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as file:
            counts = {int(owner): int(rows) for owner, rows in file["counts"]}
            left_out = tuple(file["left_out"].tolist()) if "left_out" in file else ()
            self._keep(number, Masked(file["share"], counts, left_out, self._sent(number).exists()))
        return self._kept[number]

    def store(self, number: int, masked: Masked) -> None:
        """Keep a share before it is sent."""
        self._keep(number, masked)
        if self._folder is not None:
            path = self._path(number)
            part = path.with_suffix(".part.npz")
            with open(part, "wb", opener=_private) as file:
                counts = np.array([*masked.counts.items()], dtype=np.int64)
                np.savez(file, share=masked.share, counts=counts, left_out=np.array(masked.left_out, dtype=np.int64))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            _sync_folder(self._folder)

    def forget(self, number: int) -> None:
        """Delete the share of a release that is begun again, before anything else is sent.

        Otherwise a server that is interrupted once more could later send it beside the shares of another attempt, whose
        noise differs.
        """
        self._kept.pop(number, None)
        if self._folder is not None:
            self._path(number).unlink(missing_ok=True)
            _sync_folder(self._folder)

    def mark_sent(self, number: int) -> None:
        """Record that the share of a release is about to be sent."""
        self._kept[number] = replace(self._kept[number], is_sent=True)
        if self._folder is not None:
            _write(self._sent(number), b"")

    def mark_booked(self) -> None:
        """Record that the budget of the study is booked."""
        self.is_booked = True
        if self._folder is not None:
            _write(self._folder / "booked", b"")

    def _keep(self, number: int, masked: Masked) -> None:
        if self._folder is not None:
            self._kept.clear()  # The others are on disk.
        self._kept[number] = masked

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"release_{number:06d}.npz"

    def _sent(self, number: int) -> Path:
        return self._path(number).with_suffix(".sent")


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, also in a folder that others can read."""
    return os.open(path, flags, mode=0o600)


def _sync_folder(folder: Path) -> None:
    """Make the names of new files survive a power failure. A forgotten ".sent" would allow a second release."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
