"""What software cannot know about a release, and the holder of the data writes down in a TOML file."""

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")


@dataclass(frozen=True)
class About:
    """Answers of the holder of the data. Whatever is left out stays marked as open.

    Parameters
    ----------
    name, description : str
        The released model, for the registry.
    curators, authors : tuple of str
        Who publishes the model, and who wrote the entry for the registry.
    intended_use, region, sector : str
        ``sector`` is one of ``SECTORS``.
    utility, side_channels, security, collection, tuning, justification : str
        Answers to the questions of the evaluation: errors by group; where the training ran; who can read the data; how
        the data were collected; how settings were chosen; and why these.
    sources, notes : str
        Links and remarks for the registry.
    """

    name: str = ""
    description: str = ""
    curators: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    intended_use: str = ""
    region: str = ""
    sector: str = ""
    utility: str = ""
    side_channels: str = ""
    security: str = ""
    collection: str = ""
    tuning: str = ""
    justification: str = ""
    sources: str = ""
    notes: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "About":
        """Read the answers from a TOML file, whose keys are the fields of this class."""
        try:
            given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a TOML file: {error}") from error
        known = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"{path} has an unknown key {name!r}. Known are {', '.join(known)}.")
            is_list = name in {"curators", "authors"}
            texts = value if is_list and isinstance(value, list) else [value]
            if not all(isinstance(text, str) and text.strip() for text in texts) or (is_list and value == []):
                wanted = "a list of texts" if is_list else "a text"
                raise ValueError(f"{name} in {path} must be {wanted}, got {value!r}.")
            given[name] = tuple(texts) if is_list else value
        if given.get("sector", SECTORS[0]) not in SECTORS:
            raise ValueError(f"sector in {path} must be one of {', '.join(SECTORS)}, got {given['sector']!r}.")
        return cls(**given)
