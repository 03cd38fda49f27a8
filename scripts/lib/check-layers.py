# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks that includes point only down the layers of kernel/, and never in a circle. It reads include lines and the
names of functions. It does not know what they are used for.
"""
import pathlib
import re
import sys

from sources import sources

# From the bottom up. A file may include its own layer and those below it.
LAYERS = ["proto", "base", "object", "net", "engine", "transport", "raw", "device"]

# Below device/ few files name the RDMA core and the network stack, because a later step links them into a process. These
# numbers may fall. A commit that raises one says why.
MOST_CORE_FUNCTIONS = 14
SKB_FILES = {"net", "transport/output.c", "transport/output.h", "transport/conn.c",
             "transport/ud.c"}

USERSPACE = [
    ("ring", "userspace/ring"),
    ("provider", "userspace/provider"),
    ("tools", "userspace/tools"),
]
MAY_USE = {
    "ring": {"ring"},
    "provider": {"ring", "provider"},
    "tools": {"ring", "tools"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def included(path, root):
    """The project's files that this file includes, relative to root."""
    for name in INCLUDE.findall(path.read_text()):
        for base in (path.parent, root):
            target = (base / name).resolve()
            if target.is_file() and target.is_relative_to(root.resolve()):
                yield target.relative_to(root.resolve())
                break


def noun(path):
    """A .c file and its .h file are one unit."""
    return str(pathlib.PurePath(path).with_suffix(""))


def circles(graph):
    """Lists of units that include each other, directly or not (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


CORE_CALL = re.compile(r"\b((?:ib|rdma|uverbs)_\w+)\(")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def core_findings(texts):
    """How many names of the RDMA core and of the network stack are used below device/ and outside net/ and raw/."""
    below = {path: COMMENT.sub("", text) for path, text in texts.items() if path.parts[0] not in ("device", "net", "raw")}
    core = sorted({name for text in below.values() for name in CORE_CALL.findall(text)})
    skbs = sorted(str(path) for path, text in below.items() if "sk_buff" in text)
    if len(core) > MOST_CORE_FUNCTIONS:
        yield f"kernel: below device/ {len(core)} functions of the RDMA core are named: {' '.join(core)}"
    for path in skbs:
        if path not in SKB_FILES:
            yield f"kernel/{path}: names sk_buff; packets are net/'s"


def kernel_findings():
    root = pathlib.Path("kernel")
    graph, texts = {}, {}
    for path in sources("kernel/*.c", "kernel/*.h"):
        mine = path.relative_to(root)
        texts[mine] = path.read_text()
        if mine.parts[0] not in LAYERS:
            yield f"{path}: is in no layer; put it into one of {' '.join(LAYERS)}"
            continue
        for target in included(path, root):
            if LAYERS.index(target.parts[0]) > LAYERS.index(mine.parts[0]):
                yield f"{path}: includes {target} of a higher layer"
            if noun(target) != noun(mine):
                graph.setdefault(noun(mine), set()).add(noun(target))
    for circle in circles(graph):
        yield f"kernel: these include each other: {' '.join(circle)}"
    yield from core_findings(texts)


def user_layer(path):
    return next((name for name, folder in USERSPACE if str(path).startswith(folder + "/")), None)


def user_findings():
    root = pathlib.Path(".")
    for path in sources("userspace/*.cpp", "userspace/*.hpp"):
        mine = user_layer(path)
        if mine is None:
            continue
        for target in included(path, root):
            other = user_layer(target)
            if str(target).startswith("kernel/") or (other and other not in MAY_USE[mine]):
                yield f"{path}: is in {mine} and includes {target}"


def main():
    findings = [*kernel_findings(), *user_findings()]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


sys.exit(main())
