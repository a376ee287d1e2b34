#!/usr/bin/env python3
"""Import cycles between the source files of each crate, as strongly connected components of their paths.

`cycles.py [CRATE_FOLDER ...]` prints every component of two or more files, and fails if one spans folders.
A path that goes through `pub use` counts for the file that has the item, not for the one that passes it on.
Files of a folder `x/` and the file `x.rs` or `x/mod.rs` that declares them are one folder. Tests, comments and strings do not count.
"""

import re
import signal
import sys
from pathlib import Path

IDENT = r"[A-Za-z_][A-Za-z0-9_]*"


def bare(text):
    """The text without comments, literals and test modules."""
    text = re.sub(r'//[^\n]*|/\*.*?\*/|r#".*?"#|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', " ", text, flags=re.S)
    return re.split(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{", text)[0]


def leaves(tree, prefix=()):
    """The paths that a use tree names, each with the name that it is known by: `a::{b, c as d}` gives ((a, b), b), ((a, c), d)."""
    tree = tree.strip()
    head = re.match(rf"(?:{IDENT}|\*)", tree)
    if tree.startswith("{"):
        depth, start = 0, 1
        for place, char in enumerate(tree):
            depth += (char == "{") - (char == "}")
            if (char == "," and depth == 1) or depth == 0:
                if tree[start:place].strip():
                    yield from leaves(tree[start:place], prefix)
                start = place + 1
            if depth == 0:
                return
    elif head:
        path = (*prefix, head.group())
        rest = tree[head.end() :].strip()
        if rest.startswith("::"):
            yield from leaves(rest[2:], path)
        elif path[-1] == "self":
            yield path[:-1], path[-2] if len(path) > 1 else "self"
        else:
            known_as = re.match(rf"as\s+({IDENT})", rest)
            yield path, known_as.group(1) if known_as else path[-1]


class Crate:
    """The modules of one crate: where each lies, what it passes on, and which others it names."""

    def __init__(self, folder):
        source = folder / "src"
        self.files = {}
        for file in sorted(source.rglob("*.rs")):
            parts = list(file.relative_to(source).with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            self.files[tuple(parts)] = file
        self.text = {module: bare(file.read_text()) for module, file in self.files.items()}
        self.passed_on = {module: self.uses(module, "pub(?:\\([^)]*\\))? ") for module in self.files}

    def uses(self, module, visibility):
        """What `use` brings into a module: name to absolute path."""
        found = {}
        for tree in re.findall(rf"(?:^|[;{{}}\]])\s*{visibility}use\s+([^;]+);", self.text[module]):
            for path, name in leaves(tree):
                found[name if name != "*" else path] = path
        return found

    def resolve(self, module, path, seen=frozenset()):
        """The file that has what a path names as seen from a module, or None if that is outside of the crate."""
        at, path = list(module), list(path)
        if path[0] == "crate":
            at, path = [], path[1:]
        elif path[0] == "self":
            path = path[1:]
        elif path[0] == "super":
            while path and path[0] == "super":
                at, path = at[:-1], path[1:]
        elif tuple(at) + (path[0],) not in self.files:
            return None
        while path and tuple(at) + (path[0],) in self.files:
            at.append(path.pop(0))
        here = tuple(at)
        if path and here in self.files and (here, path[0]) not in seen:
            for name, target in self.passed_on[here].items():
                if name == path[0] or isinstance(name, tuple):
                    steps = [*target[:-1], *path] if isinstance(name, tuple) else [*target, *path[1:]]
                    there = self.resolve(here, steps, seen | {(here, path[0])})
                    if there is not None and (name == path[0] or self.defines(there, path[0])):
                        return there
        return here if here in self.files else None

    def defines(self, module, name):
        return re.search(rf"\b(?:fn|struct|enum|trait|type|const|static|macro_rules!|union)\s+{name}\b", self.text[module])

    def edges(self, module):
        text = self.text[module]
        text = re.sub(r"(?:^|(?<=[;{}\]]))\s*pub(?:\([^)]*\))?\s+use\s+[^;]+;", " ", text)
        paths = [path for tree in re.findall(r"\buse\s+([^;]+);", text) for path, _ in leaves(tree)]
        text = re.sub(r"\buse\s+[^;]+;", " ", text)
        paths += [tuple(found.split("::")) for found in re.findall(rf"\b(?:crate|super|self)(?:::{IDENT})+", text)]
        brought = {name: path for tree in re.findall(r"\buse\s+([^;]+);", self.text[module]) for path, name in leaves(tree)}
        for found in re.findall(rf"(?<![:\w])({IDENT}(?:::{IDENT})+)", text):
            first, *rest = found.split("::")
            if first in brought and brought[first][0] in ("crate", "super", "self"):
                paths.append((*brought[first], *rest))
        found = {self.resolve(module, path) for path in paths if path[0] in ("crate", "super", "self")}
        return sorted(there for there in found if there is not None and there != module)

    def components(self):
        """Strongly connected components of two or more files (Tarjan 1972)."""
        number, low, stack, result = {}, {}, [], []

        def visit(module):
            number[module] = low[module] = len(number)
            stack.append(module)
            for there in self.edges(module):
                if there not in number:
                    visit(there)
                    low[module] = min(low[module], low[there])
                elif there in stack:
                    low[module] = min(low[module], number[there])
            if low[module] == number[module]:
                at = stack.index(module)
                part = stack[at:]
                del stack[at:]
                if len(part) > 1:
                    result.append(sorted(part))

        sys.setrecursionlimit(10_000)
        for module in self.files:
            if module not in number:
                visit(module)
        return result

    def room(self, module):
        """The folder that a file belongs to; the file that declares a folder belongs to it."""
        declares = any(other[: len(module)] == module and len(other) > len(module) for other in self.files)
        return module if declares else module[:-1]


def main():
    folders = [Path(name) for name in sys.argv[1:]] or sorted(
        file.parent for file in Path(".").rglob("Cargo.toml") if (file.parent / "src").is_dir() and "target" not in file.parts
    )
    wide = 0
    for folder in folders:
        crate = Crate(folder)
        for part in crate.components():
            rooms = {crate.room(module) for module in part}
            wide += len(rooms) > 1
            print(f"{folder}: {len(part)} files in {len(rooms)} folder{'s' * (len(rooms) > 1)}")
            for module in part:
                inside = ["::".join(there) or "lib" for there in crate.edges(module) if there in part]
                print(f"  {'::'.join(module) or 'lib'} → {', '.join(inside)}")
    sys.exit(wide > 0)


if __name__ == "__main__":
    # The reader of the output, such as `head`, may close the pipe: then the script ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
