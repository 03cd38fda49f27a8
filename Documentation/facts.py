# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A Sphinx extension that takes facts from the sources, so that they are written once.

    .. counters:: SECTION    a row for each X(name, "text") after the comment SECTION in the lists of counters and drops
    .. tracepoints::         a row for each tracepoint, with the comment above it
    .. guarded-fields::      the fields that follow comments "Guarded by LOCK:", by lock
    .. type:: HEADER NAME    the public part of a type of libpeal, with the comment above it
    .. misuses::             what must not compile with libpeal, with the reason, from test/unit/lib/misuse
    :test:`NAME`             a test: a TEST_CASE of libpeal, or a guest test with its folder
    :lines:`FILE...`         how many lines these programs have that are neither empty nor a comment

It warns about a counter that no code counts, a comment that names no lock, a lock that the page does not name, a type that is
not in the header, and a test or a program that does not exist.
"""
import collections
import pathlib
import re

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

KERNEL = pathlib.Path(__file__).parent.parent / "kernel"
LIBRARY = KERNEL.parent / "userspace/lib/peal"
TESTS = KERNEL.parent / "test"
LISTS = KERNEL / "base/counters.h", KERNEL / "proto/packet.h"
TRACE = KERNEL / "base/trace.h"
ENTRY = re.compile(r'^\t(?:/\* (.*): \*/|X\((\w+), "(.*)"\))', re.M)
EVENT = re.compile(r"/\* (.*) \*/\n(?:TRACE_EVENT\(|DEFINE_EVENT\(\w+, )(\w+),")
STRUCT = re.compile(r"^struct peal_(\w+) \{\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r"^\t((?:(?:const|struct|enum|union|unsigned) )*\w+)\b(.*);")
LOCK_TYPES = "spinlock_t", "struct mutex"
warn = logging.getLogger(__name__).warning


def table(rows):
    width = max(len(name) for name, _ in rows) + 4
    border = f"{'=' * width}  {'=' * 80}"
    return ["", border, *(f"{f'``{name}``':{width}}  {re.sub('`', '``', text)}" for name, text in rows), border, ""]


def counters():
    """Yields the section, the name and the text of each."""
    for path in LISTS:
        section = None
        for heading, name, text in ENTRY.findall(path.read_text()):
            section = heading or section
            if name and section:
                yield section, name if path.name == "counters.h" else "drop_" + name, text


def guarded_fields(texts):
    """The fields of each lock by struct, and the locks that there are."""
    guarded, locks = collections.defaultdict(lambda: collections.defaultdict(list)), {"RTNL"}
    for text in texts:
        locks.update(re.findall(r"\bDEFINE_(?:MUTEX|SPINLOCK)\((\w+)\)", text))
        for struct, body in STRUCT.findall(text):
            lock = None
            for line in body.splitlines():
                if section := re.search(r"/\* Guarded by (.*): \*/$", line):
                    lock = section[1]
                elif not line.strip():
                    lock = None
                elif field := FIELD.match(re.sub(r"/\*.*?\*/", "", line)):
                    names = re.findall(r"(\w+)(?:\[[^\]]*\])?(?:,|$|\)\()", field[2].strip())
                    if lock:
                        guarded[lock][struct] += names
                    if field[1] in LOCK_TYPES:
                        locks.update(f"{struct}.{name}" for name in names)
                    elif field[1] == "struct xarray":
                        locks.update(f"{struct}.{name}.xa_lock" for name in names)
    return guarded, locks


class Facts(SphinxDirective):
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self):
        for path in KERNEL.rglob("*.[ch]"):
            self.env.note_dependency(str(path))
        self.state_machine.insert_input(list(self.lines()), self.name)
        return []


class Counters(Facts):
    def lines(self):
        code = "\n".join(path.read_text() for path in KERNEL.rglob("*.[ch]"))
        rows = [(name, text) for section, name, text in counters() if section == self.arguments[0]]
        for name, _ in rows:
            reason = name.removeprefix("drop_")
            if not re.search(rf"\bpeal_count\w*\([^,;]*,\s*{name}\b|\bPEAL_(?:COUNTER|DROP)_{reason}\b", code):
                warn("kernel: no code counts %s", name, location=self.get_location())
        return table(rows)


class Tracepoints(Facts):
    def lines(self):
        return table([(name, text) for text, name in EVENT.findall(TRACE.read_text())])


class GuardedFields(Facts):
    def lines(self):
        guarded, locks = guarded_fields(path.read_text() for path in sorted(KERNEL.rglob("*.[ch]")))
        page = pathlib.Path(self.env.doc2path(self.env.docname)).read_text()
        named = {lock for names in guarded for lock in re.split(", | and ", names)}
        for lock in sorted(named - locks):
            warn("a comment names the lock %s, which there is not", lock, location=self.get_location())
        for lock in sorted(lock for lock in locks if lock not in page and not lock.endswith(".xa_lock")):
            warn("the page does not name the lock %s", lock, location=self.get_location())
        for lock, structs in sorted(guarded.items()):
            yield f"``{lock}``"
            yield "    " + "; ".join(f"``{struct}``: {', '.join(names)}" for struct, names in sorted(structs.items()))
            yield ""


class Type(SphinxDirective):
    required_arguments = 2

    def run(self):
        header, name = self.arguments
        path = LIBRARY / header
        self.env.note_dependency(str(path))
        found = re.search(
            rf"^(?:/\*(?:(?!\*/).)*\*/\n)?(?:template[^\n]*\n)?"
            rf"(?:class|struct|enum class)(?: [^\s;:]+)* {name}\b[^;\n]*\{{\n.*?"
            r"(?=\n*^(?:private|protected):|^\};)",
            path.read_text(),
            re.M | re.S,
        )
        if not found:
            warn("%s has no type %s", header, name, location=self.get_location())
            return []
        text = found[0].rstrip() + "\n};"
        block = nodes.literal_block(text, text, language="c++")
        self.set_source_info(block)
        return [block]


class Misuses(Facts):
    def run(self):
        self.state_machine.insert_input(list(self.lines()), self.name)
        return []

    def lines(self):
        yield ""
        for path in sorted((TESTS / "unit/lib/misuse").glob("*.cpp")):
            text = path.read_text()
            self.env.note_dependency(str(path))
            reason = re.search(r"^/\* (?!SPDX|error:)(.*) \*/$", text, re.M)
            code = re.search(r"#ifdef MISUSE\n(.*?)\n#else", text, re.S)
            yield f"``{path.stem}``"
            yield f"    {reason[1]} This does not compile::"
            yield ""
            yield from ("        " + line.strip() for line in code[1].splitlines() if "(void)other," not in line)
            yield ""


def test_role(_name, _raw, text, line, inliner, _options=None, _content=None):
    """A test by its name, which must exist."""
    claims = "".join(path.read_text() for path in (TESTS / "unit/lib").glob("*.cpp"))
    if f'TEST_CASE("{text}"' not in claims and not (TESTS / "guest" / f"{text}.sh").exists():
        warn("there is no test %s", text, location=(inliner.document.current_source, line))
    return [nodes.emphasis(text, text)], []


def lines_role(_name, _raw, text, line, inliner, _options=None, _content=None):
    """Files are relative to the folder of this one, and those without a folder are examples of libpeal."""
    count = 0
    for name in text.split():
        path = pathlib.Path(__file__).parent / name if "/" in name else LIBRARY.parent / "examples" / name
        if not path.exists():
            warn("there is no file %s", name, location=(inliner.document.current_source, line))
            continue
        inliner.document.settings.env.note_dependency(str(path))
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
        count += sum(1 for one in code.splitlines() if one.strip())
    return [nodes.Text(str(count))], []


def setup(app):
    app.add_directive("counters", Counters)
    app.add_directive("tracepoints", Tracepoints)
    app.add_directive("guarded-fields", GuardedFields)
    app.add_directive("type", Type)
    app.add_directive("misuses", Misuses)
    app.add_role("test", test_role)
    app.add_role("lines", lines_role)
    return {"parallel_read_safe": True}
