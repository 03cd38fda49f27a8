# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks that includes point one way. It reads include lines only; it does not know what a name is used for."""
import pathlib
import re
import sys

from sources import sources

# From the bottom up; a file may include its own layer and those below it. A file that is not named here belongs to
# the layer of its folder, and a kernel file without any is a finding: whoever adds one decides where it belongs.
KERNEL = [
    ("proto", "proto/*"),
    ("objects", "compat counters copy map quota table guard workers alarm ring budget extents door wqe outcome trace mr mw "
                "cursor cq rq sq burst qp context roster runlist options reach"),
    ("direct", "direct responder"),
    ("engine", "requester engine"),
    ("net", "net/* ah dev post line load keep place probe serve ud wire deliver group"),
    ("verbs", "query verbs verbs_qp netlink link main"),
]
USERSPACE = [
    ("ring", "userspace/ring"),
    ("provider", "userspace/provider"),
    ("lib", "userspace/lib"),
    ("tools", "userspace/tools"),
]
MAY_USE = {
    "ring": {"ring"},
    "provider": {"ring", "provider"},
    "lib": {"ring", "lib"},
    "tools": {"ring", "lib", "tools"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def kernel_layer(path):
    """The number of the layer of a file below kernel/, or None."""
    name = pathlib.PurePath(path).with_suffix("")
    for number, (_, members) in enumerate(KERNEL):
        for member in members.split():
            if str(name) == member or name.match(member):
                return number
    return None


def included(path, root):
    """The project's files that this one includes, relative to root."""
    for name in INCLUDE.findall(path.read_text()):
        for base in (path.parent, root):
            target = (base / name).resolve()
            if target.is_file() and target.is_relative_to(root.resolve()):
                yield target.relative_to(root.resolve())
                break


def kernel_findings():
    root = pathlib.Path("kernel")
    for path in sources("kernel/*.c", "kernel/*.h"):
        mine = kernel_layer(path.relative_to(root))
        if mine is None:
            yield f"{path}: belongs to no layer; add it to KERNEL in scripts/lib/check-layers.py"
            continue
        for target in included(path, root):
            other = kernel_layer(target)
            if other is not None and other > mine:
                yield f"{path}: is in layer {KERNEL[mine][0]} and includes {target} of {KERNEL[other][0]}"


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
