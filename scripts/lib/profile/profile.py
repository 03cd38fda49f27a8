# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Instructions of one message by function, from what count.c and scripts/lib/profile/work leave.

    profile.py show LINES FEW MANY COUNT           prints the profile
    profile.py save FILE FEW MANY COUNT            writes it to a file
    profile.py compare FILE FEW MANY COUNT         prints how it differs from that file
    profile.py shared FOLDER COUNT FROM UNTIL      prints the cache lines that two CPUs share

FEW and MANY are folders with the files "blocks" and "symbols" of two boots. The second sent COUNT more messages. The difference
is what these messages cost, because both boots did the rest alike. All code of programs counts as one function.
"""

import bisect
import collections
import re
import sys

# Functions of peal and programs that differ by less are not shown.
LEAST = 1.5
# The same for functions of the kernel, as a part of the whole message, because boots differ in what timers and scheduler do. A
# function that costs less than a fifth of it is not saved.
LEAST_OF_KERNEL = 0.01
HEAD = """# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Instructions of one message by function. Written by scripts/profile --save.
"""
PROGRAMS = "programs"


def module_of(function):
    """The module in brackets, "kernel" or "programs"."""
    found = re.search(r"\[(.*)\]$", function)
    return found.group(1) if found else PROGRAMS if function == PROGRAMS else "kernel"


def matters(name, count, whole, part=1.0):
    """Whether so many instructions of this function are more than how boots differ."""
    ours = name == PROGRAMS or "peal" in module_of(name)
    return abs(count) >= (LEAST if ours else LEAST_OF_KERNEL * part * whole)


class Symbols:
    """The functions of one boot by address."""

    def __init__(self, folder):
        self.symbols = symbols_of(folder)
        self.addresses = [address for address, _ in self.symbols]

    def name(self, address):
        """The function that has this address."""
        return self.symbols[bisect.bisect_right(self.addresses, address) - 1][1]


def symbols_of(folder):
    """Pairs of an address and a function, sorted."""
    symbols = []
    with open(f"{folder}/symbols", encoding="ascii") as lines:
        for line in lines:
            address, kind, name, *module = line.split()
            if kind in "tTwW":
                # The compiler's suffixes say nothing about the source.
                name = re.sub(r"\.(isra|constprop|part|cold)\b.*", "", name)
                symbols.append((int(address, 16), " ".join([name, *module])))
    return sorted(symbols)


def counts(folder):
    """Instructions by function of one boot."""
    symbols = Symbols(folder)
    total = collections.Counter()
    with open(f"{folder}/blocks", encoding="ascii") as lines:
        for line in lines:
            address, instructions, runs = line.split()
            in_kernel = int(address, 16) >= 1 << 63
            total[symbols.name(int(address, 16)) if in_kernel else PROGRAMS] += int(instructions) * int(runs)
    return total


def profile_of(few, many, messages):
    """Instructions of one message by function."""
    one, other = counts(few), counts(many)
    return {name: (other[name] - one[name]) / messages for name in one | other}


def modules_line(profile):
    """The sums by module."""
    sums = collections.Counter()
    for name, count in profile.items():
        sums[module_of(name)] += count
    return ", ".join(f"{name} {count:.0f}" for name, count in sums.most_common(6))


def show(profile, lines):
    """Prints the sums and the most expensive functions."""
    print(f"{sum(profile.values()):10.0f}  all: {modules_line(profile)}")
    for name, count in sorted(profile.items(), key=lambda item: -item[1])[:lines]:
        print(f"{count:10.0f}  {name}")


def save(profile, path):
    """Writes the functions that compare() would miss."""
    with open(path, "w", encoding="ascii") as file:
        file.write(HEAD)
        whole = sum(profile.values())
        for name, count in sorted(profile.items(), key=lambda item: -item[1]):
            if count > 0 and matters(name, count, whole, 0.2):
                print(f"{count:.1f} {name}", file=file)


def compare(profile, path):
    """Prints the functions that cost more or less than in the file."""
    with open(path, encoding="ascii") as file:
        pairs = (line.rstrip("\n").split(" ", 1) for line in file if not line.startswith("#"))
        saved = {name: float(count) for count, name in pairs}
    whole = sum(profile.values())
    print(f"{sum(saved.values()):10.0f} -> {whole:.0f}  all: {modules_line(saved)} -> {modules_line(profile)}")
    changes = {name: profile.get(name, 0) - saved.get(name, 0) for name in saved.keys() | profile.keys()}
    for name, change in sorted(changes.items(), key=lambda item: -abs(item[1])):
        if matters(name, change, whole):
            print(f"{saved.get(name, 0):10.0f} -> {profile.get(name, 0):.0f} ({change:+.0f})  {name}")


# Two messages share a cache line if both CPUs use it at least so often, and one stores to it at least so often. The interrupts
# of the timer store less often.
LEAST_USES = 0.1


def shared(folder, messages, begin, until):
    """Prints the cache lines that lines.c has found. Each CPU has sent so many messages in the whole boot."""
    symbols = Symbols(folder)
    with open(f"{folder}/lines", encoding="ascii") as lines:
        accesses = [int(count) for count in next(lines).split()]
        found = [line.split() for line in lines]
    if min(accesses) < until:
        sys.exit(f"the messages are too few: {accesses} accesses of modules, {until} are needed")
    # So many messages of the faster CPU were counted.
    counted = messages * (until - begin) / max(accesses)
    print(f"{sum(accesses) / 2 / messages:10.0f}  accesses of modules to kernel memory, a message")
    shown = 0
    for _, *fields in sorted(found, key=lambda line: -int(line[1]) - int(line[2])):
        ends = [fields[:4], fields[4:]]
        uses = [(int(loads) + int(stores)) / counted for loads, stores, _, _ in ends]
        if min(uses) < LEAST_USES or max(int(end[1]) for end in ends) < LEAST_USES * counted:
            continue
        shown += 1
        who = sorted({symbols.name(int(address, 16)) for end in ends for address in end[2:] if int(address, 16)})
        print(f"{uses[0]:10.1f} {uses[1]:.1f}  {', '.join(who)}")
    print(f"{shown:10}  cache lines that both CPUs use for each message, and one stores to")


def main():
    """See the head of the file."""
    if sys.argv[1] == "shared":
        folder, *numbers = sys.argv[2:]
        shared(folder, *map(int, numbers))
        return
    action, what, few, many, messages = sys.argv[1:]
    profile = profile_of(few, many, int(messages))
    if action == "show":
        show(profile, int(what))
    else:
        {"save": save, "compare": compare}[action](profile, what)


main()
