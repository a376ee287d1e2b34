"""Messages of LibreOffice: what the catalogues (`….mo`) below a folder translate, and how."""

import gettext
import glob
from collections.abc import Iterator


def plain(text: str) -> str:
    """Without the mark of an access key, which a message has once."""
    for mark in "_~":
        if text.count(mark) == 1:
            text = text.replace(mark, "")
    return text.strip()


def messages(folder: str) -> Iterator[tuple[str, str]]:
    """Each message with its translation, in the order of the files' names. Messages with plural forms are left out."""
    for path in sorted(glob.glob(f"{folder}/**/*.mo", recursive=True)):
        with open(path, "rb") as file:
            found = gettext.GNUTranslations(file)._catalog
        for message, translation in found.items():
            # Plural forms have a number beside them; the entry without a message is the catalogue's head.
            if isinstance(message, tuple) or not message:
                continue
            # What stands before this byte says where the message is used.
            source, target = plain(message.split("\x04", 1)[-1]), plain(translation)
            if source and target:
                yield source, target
