# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks what comments in kernel/ say about locks. Documentation/locking.rst describes the forms.

It compares the fields that follow a comment "Guarded by ..." with those that locking.rst lists for that lock, looks whether
each lock exists, and finds functions that do not assert what their comments say about their callers. It does not know
whether the right lock is asserted; lockdep does."""
import pathlib
import re
import sys

from sources import sources

PAGE = pathlib.Path("Documentation/locking.rst")
LOCK_TYPES = {"spinlock_t", "struct mutex"}
STACK_LOCKS = {"RTNL"}

STRUCT = re.compile(r"^struct peal_(\w+) \{\n(.*?)^\}", re.M | re.S)
GUARDED = re.compile(r"/\* Guarded by ([^:]*): \*/$")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
FIELD = re.compile(r"^\t((?:(?:const|struct|enum|union|unsigned) )*\w+)\b(.*);")
GLOBAL = re.compile(r"\bDEFINE_(?:MUTEX|SPINLOCK)\((\w+)\)")
ROW = re.compile(r"^``([^`\n]+)``\n    (.*?)(?:\n\n|\Z)", re.M | re.S)
GROUP = re.compile(r"``(\w+)``: ([^;]+)")

# A comment, and the function or the declaration right after it.
FUNCTION = re.compile(r"(?:(/\*(?:[^*]|\*(?!/))*\*/)\n)?^(?!typedef|return|\t)(?:[\w*]+ +\**)+(\w+)(\([^;{}=]*\))\s*"
                      r"(;|\{\n.*?^\}$)", re.M | re.S)
OPERATION = re.compile(r"(/\*(?:[^*]|\*(?!/))*\*/)\n\t[\w *]+\(\*(\w+)\)\(")
LOCK = r"(?:the lock|(?:@?[\w.>-]+'s )?[`\w.>-]*(?:lock|mutex|control|RCU|RTNL))\b"
SAYS_HELD = re.compile(rf"\b[Uu]nder {LOCK}|\b[Cc]aller (?:of [\w ,()]+ )?holds (?:both|`?{LOCK})|\b[Ii]nside the epoch\b"
                       rf"|\bwith {LOCK}`?(?: and {LOCK})? (?:of \S+ )?held|^(?:Both locks|{LOCK})[:,]")
OF_EACH = re.compile(r"\b(?:each|every) function\b(?: but (\w+)\(\))?", re.I)
ASSERTS = re.compile(r"\block\w*_assert|_assert_(?:\w+_)?held\(|RCU_LOCKDEP_WARN\(|ASSERT_RTNL\(|peal_epoch_held\(|__must_hold\(")
# A comment that speaks of assertions says who asserts instead.
EXCUSES = re.compile(r"\bassert|^(?:No lock|Sleeps)")


def words(comment):
    """A comment's text, without what it says about parameters."""
    comment = re.sub(r"^/\*+ ?|\s*\*/$|^\s*\* ?", "", comment, flags=re.M)
    return re.sub(r"\s+", " ", re.sub(r"^@\w+: .*(?:\n\t.*)*", "", comment, flags=re.M)).strip()


def locks_in(text):
    return frozenset(re.split(r", | and ", text))


def members(body):
    """Each field of a struct: name, type, the locks of the section in which it is."""
    locks = frozenset()
    for line in body.splitlines():
        section = GUARDED.search(line)
        if section:
            locks = locks_in(section[1])
        elif not line.strip():
            locks = frozenset()
        field = FIELD.match(COMMENT.sub("", line))
        for name in re.findall(r"(\w+)(?:\[[^\]]*\])?(?:,|$|\)\()", field[2].strip()) if field else ():
            yield name, field[1], locks


def lock_exists(lock, types, globals_):
    struct, *path = lock.split(".")
    found = f"struct peal_{struct}"
    for name in path:
        if found == "struct xarray" and name == "xa_lock":
            return True
        found = types.get((found.removeprefix("struct peal_"), name), "")
    return lock in globals_ | STACK_LOCKS or found in LOCK_TYPES


def field_findings(texts, page):
    types, guards, globals_ = {}, set(), set()
    for text in texts.values():
        globals_.update(GLOBAL.findall(text))
        for struct, body in STRUCT.findall(text):
            for name, kind, locks in members(body):
                types[struct, name] = kind
                guards.update((lock, struct, name) for lock in [locks] if locks)
    listed = {(locks_in(lock), struct, name) for lock, row in ROW.findall(page)
              for struct, names in GROUP.findall(row) for name in re.findall(r"\w+", names)}
    for locks, struct, name in sorted(guards - listed, key=str):
        yield f"{PAGE}: does not list {struct}.{name} for {' and '.join(sorted(locks))}, as its struct says"
    for locks, struct, name in sorted(listed - guards, key=str):
        yield f"{PAGE}: lists {struct}.{name} for {' and '.join(sorted(locks))}, which its struct does not say"
    last = {name for (_, name), kind in types.items() if kind in LOCK_TYPES} | {"xa_lock"}
    named = set(re.findall(r"\b[a-z]\w*(?:\.\w+)+\b|\bpeal_\w+_(?:lock|mutex)\b", page))
    named = {lock for lock in named if lock.startswith("peal_") or lock.split(".")[-1] in last}
    for lock in sorted(named.union(*(locks for locks, _, _ in guards))):
        if not lock_exists(lock, types, globals_):
            yield f"{PAGE}, or a comment at a field: there is no lock {lock}"
    known = globals_ | {f"{struct}.{name}" for (struct, name), kind in types.items() if kind in LOCK_TYPES}
    for lock in sorted(known - named):
        yield f"{PAGE}: does not name the lock {lock}"


def function_findings(texts):
    comments, bodies, shared, operations = {}, {}, set(), {}
    for path, text in texts.items():
        for comment, name in OPERATION.findall(text):
            operations[name] = comment
        for comment, name, _, body in FUNCTION.findall(text):
            comments.setdefault(name, []).append(comment)
            if body != ";":
                bodies[name] = (path, body)
            elif path.suffix == ".h":
                shared.add(name)
        for operation, name in re.findall(r"\.(\w+) = (\w+)[, ]", text):
            if operation in operations and name in comments:
                comments[name].append(operations[operation])
    heads = {path: COMMENT.findall(text[text.index("\n"):])[0] for path, text in texts.items()}
    for name, (path, body) in sorted(bodies.items()):
        said = comments[name]
        if name in shared:
            for head in {heads[path], heads.get(path.with_suffix(".h"), "")}:
                each = OF_EACH.search(words(head))
                said = said + [head] if each and each[1] != name else said
        mine = [words(comment) for comment in said]
        if any(SAYS_HELD.search(each) for each in mine) and not ASSERTS.search(body) \
                and not any(EXCUSES.search(each) for each in mine):
            yield f"{path}: {name}() does not assert what its comment says about its callers"


def main():
    # Headers first, because they say what the operations of a table may rely on.
    paths = sorted(sources("kernel/*.c", "kernel/*.h"), key=lambda path: (path.suffix != ".h", path))
    texts = {path: path.read_text() for path in paths}
    findings = [*field_findings(texts, PAGE.read_text()), *function_findings(texts)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings or not texts else 0


sys.exit(main())
