# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks that kernel/ and userspace/ depend only downward: files include their own layer and those below, never in a circle,
and no file finds by container_of() a struct of a higher layer around its own. It reads include lines and names. It does not
know what they are used for."""
import pathlib
import re
import sys

from sources import sources

# From the bottom up.
LAYERS = ["proto", "base", "object", "net", "engine", "transport", "raw", "device"]
# What each folder of userspace/ may include.
MAY_USE = {"ring": {"ring"}, "provider": {"ring", "provider"}, "lib": {"ring", "lib"}, "tools": {"ring", "tools"}}

# Below device/ few files name the RDMA core and the network stack, because a later step links them into a process. The
# number may fall. A commit that raises it says why.
MOST_CORE_FUNCTIONS = 14
SKB_FILES = {"transport/output.c", "transport/output.h", "transport/conn.c", "transport/ud.c"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
STRUCT = re.compile(r"^struct (peal_\w+) \{", re.M)
CONTAINER = re.compile(r"\b(?:container_of|list_entry|hlist_entry)\([^;]*?\bstruct (peal_\w+)")
CORE_CALL = re.compile(r"\b((?:ib|rdma|uverbs)_\w+)\(")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def included(path, root):
    """The project's files that this file includes, relative to root."""
    for name in INCLUDE.findall(path.read_text()):
        for base in (path.parent, root):
            target = (base / name).resolve()
            if target.is_file() and target.is_relative_to(root.resolve()):
                yield target.relative_to(root.resolve())
                break


def circles(graph):
    """What is left of the graph when the units that include none of the rest, or that none includes, go again and again."""
    def at_an_end(unit):
        return not graph[unit] or not any(unit in others for others in graph.values())

    while ends := set(filter(at_an_end, graph)):
        graph = {unit: others - ends for unit, others in graph.items() if unit not in ends}
    return graph


def kernel_findings():
    root = pathlib.Path("kernel")
    texts = {path.relative_to(root): COMMENT.sub("", path.read_text()) for path in sources("kernel/*.c", "kernel/*.h")}
    outside = [path for path in texts if path.parts[0] not in LAYERS]
    if outside:
        return [f"kernel/{path}: is in no layer; put it into one of {' '.join(LAYERS)}" for path in outside]
    layer = {path: LAYERS.index(path.parts[0]) for path in texts}
    structs = {struct: path for path, text in texts.items() for struct in STRUCT.findall(text)}
    graph, core, found = {}, set(), []
    for path, text in texts.items():
        unit = graph.setdefault(path.with_suffix(""), set())
        for target in included(root / path, root):
            if layer[target] > layer[path]:
                found.append(f"kernel/{path}: includes {target} of a higher layer")
            if target.with_suffix("") != path.with_suffix(""):
                unit.add(target.with_suffix(""))
        for struct in CONTAINER.findall(text):
            if struct in structs and layer[structs[struct]] > layer[path]:
                found.append(f"kernel/{path}: climbs to struct {struct} of {structs[struct]} by container_of()")
        if path.parts[0] not in ("device", "net", "raw"):
            core.update(CORE_CALL.findall(text))
            if "sk_buff" in text and str(path) not in SKB_FILES:
                found.append(f"kernel/{path}: names sk_buff; packets are net/'s")
    if len(core) > MOST_CORE_FUNCTIONS:
        found.append(f"kernel: below device/ {len(core)} functions of the RDMA core are named: {' '.join(sorted(core))}")
    for unit, others in circles(graph).items():
        found.append(f"kernel/{unit}: is in a circle of includes with {' '.join(map(str, others))}")
    return found


def user_findings():
    for path in sources("userspace/*.cpp", "userspace/*.hpp"):
        may_use = MAY_USE.get(path.parts[1], MAY_USE.keys())
        for target in included(path, pathlib.Path(".")):
            if target.parts[0] == "kernel" or target.parts[0] == "userspace" and target.parts[1] not in may_use:
                yield f"{path}: includes {target}, which {path.parts[1]} must not know"


findings = [*kernel_findings(), *user_findings()]
print("\n".join(findings), end="\n" if findings else "")
sys.exit(1 if findings else 0)
