# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Finds functions of kernel/ that do not assert what their comments say of their callers: that these hold a lock, or are
inside the epoch or RCU. It does not know whether the right lock is asserted; lockdep does."""
import re
import sys

from sources import sources

# A comment, and the function or the prototype right after it.
FUNCTION = re.compile(r"/\*((?:[^*]|\*(?!/))*)\*/\n(?!typedef|return|\t)[\w* ]*?(\w+)\([^;{}=]*\)\s*;", re.M)
BODY = re.compile(r"(?:/\*((?:[^*]|\*(?!/))*)\*/\n)?^(?:[\w*]+ +\**)+(\w+)\([^;{}=]*\)\s*\{\n(.*?)^\}$", re.M | re.S)
LOCK = r"(?:both|(?:@?\w+'s )?[`\w.>-]*(?:lock|mutex|control|RCU|RTNL))\b"
HELD = re.compile(rf"\b[Uu]nder {LOCK}|\b[Cc]aller(?: of [\w ,()]+)? holds (?:the )?{LOCK}|\b[Ii]nside the epoch\b")
ASSERTS = re.compile(r"\block\w*_assert|_assert_(?:\w+_)?held\(|RCU_LOCKDEP_WARN\(|ASSERT_RTNL\(|peal_epoch_held\(|__must_hold\(")


def main():
    texts = {path: path.read_text() for path in sources("kernel/*.c", "kernel/*.h")}
    said = {}
    for text in texts.values():
        for comment, name in FUNCTION.findall(text):
            said.setdefault(name, []).append(comment)
    count = 0
    for path, text in texts.items():
        for comment, name, body in BODY.findall(text):
            comments = re.sub(r"@\w+: .*", "", "\n".join([comment, *said.get(name, [])]))
            comments = re.sub(r"\s+\*?\s*", " ", comments)
            # A comment that speaks of assertions names the caller that asserts.
            if HELD.search(comments) and not ASSERTS.search(body) and "assert" not in comments:
                print(f"{path}: {name}() does not assert what its comment says of its callers")
                count += 1
    return 1 if count or not texts else 0


sys.exit(main())
