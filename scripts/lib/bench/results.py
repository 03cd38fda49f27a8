# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The result file of scripts/bench: its arithmetic, its table, its CSV, and how two of them compare. It measures nothing.

The file is JSON:

    environment   kernel, CPU, machine, commit, perftest, icount, begin, distortions (sentences)
    subjects      the columns, in order
    rows          {label, kind, bytes}, in order
    samples       {row label: {subject: {metric: [a figure for each round]}}}
    limits        {name: [nanoseconds of each round]}
    left_out      [sentences]
"""
import csv
import io
import json
import statistics

VERSION = 1

# A metric: its unit in the table, what the stored figure is multiplied by, and whether more is better. "rate" is messages
# per second; latencies are microseconds; "instructions" are those of both ends and the kernel for one message; "cpu" is
# seconds of all CPUs for one message; "memory" is bytes. "link" is how much of a bottleneck was used, "jain" Jain's index, "worst"
# the slowest flow by the fastest one, and "part" what peal's flow got of all bytes beside one of TCP, which has no better value
# than a half.
METRICS = {
    "rate": ("k msg/s", 1e-3, True),
    "gbits": ("Gb/s", 1e-9, True),
    "median": ("us median", 1, False),
    "p99": ("us 99 %", 1, False),
    "p99.9": ("us 99.9 %", 1, False),
    "instructions": ("instr/msg", 1, False),
    "cpu": ("CPU us/msg", 1e6, False),
    "cpu_gib": ("CPU s/GiB", 1, False),
    "memory": ("KB", 1e-3, False),
    "link": ("% of link", 100, True),
    "jain": ("Jain", 1, True),
    "worst": ("worst/best", 1, True),
    "part": ("% of peal", 100, None),
}
OF_KIND = {"rate": ("rate", "gbits", "instructions"), "latency": ("median", "p99", "p99.9", "instructions"),
           "cpu": ("cpu", "cpu_gib"), "memory": ("memory",), "share": ("link", "jain", "worst", "part")}

# A smaller change is called none, as a part. Two boots of the same code differed by up to 1.1 % in the instructions of a short
# message over a wire, and by 0.5 % on one device.
LEAST_CHANGE = 0.02


class Unusable(Exception):
    """A result file that cannot be read, or two that cannot be compared."""


def median(figures):
    return statistics.median(figures)


def spread(figures):
    """Half of the range of the figures, as a part of their median. It is None for less than two figures."""
    if len(figures) < 2 or median(figures) == 0:
        return None
    return (max(figures) - min(figures)) / 2 / median(figures)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError) as error:
        raise Unusable(f"{path} is no result file: {error}") from error
    if not isinstance(result, dict) or result.get("version") != VERSION:
        raise Unusable(f"{path} is no result file of this version of scripts/bench")
    return result


def figures(result, row, subject, metric):
    """The figures of all rounds. Gb/s are those of the messages, without headers."""
    samples = result["samples"].get(row["label"], {}).get(subject, {})
    if metric == "cpu_gib":
        return [cpu * (1 << 30) / row["bytes"] for cpu in samples.get("cpu", [])] if row["bytes"] >= 1024 else []
    if metric == "gbits":
        return [rate * row["bytes"] * 8 for rate in samples.get("rate", [])] if row["bytes"] >= 1024 else []
    return samples.get(metric, [])


def lines(result):
    """Yields a row, a metric and the figures of each subject, for each line of the table that has any."""
    for row in result["rows"]:
        for metric in OF_KIND[row["kind"]]:
            found = {subject: figures(result, row, subject, metric) for subject in result["subjects"]}
            if any(found.values()):
                yield row, metric, found


def number(x):
    size = abs(x)
    return f"{x:.0f}" if size >= 100 else f"{x:.1f}" if size >= 10 else f"{x:.2f}" if size >= 1 else f"{x:.3f}"


def cell(found, factor):
    if not found:
        return "-"
    text = number(median(found) * factor)
    part = spread(found)
    return text if part is None else f"{text} ±{part * 100:.0f}%"


def table(result):
    width = 14 if any(len(f) > 1 for _, _, found in lines(result) for f in found.values()) else 11
    widths = {subject: max(width, len(subject) + 1) for subject in result["subjects"]}
    out = ["%-26s%-11s" % ("", "") + "".join(f"{subject:>{widths[subject]}}" for subject in widths)]
    last = None
    for row, metric, found in lines(result):
        unit, factor, _ = METRICS[metric]
        label = "" if row["label"] == last else row["label"]
        last = row["label"]
        out.append("%-26s%-11s" % (label, unit) + "".join(f"{cell(found[s], factor):>{widths[s]}}" for s in widths))
    if result["limits"]:
        unit = "instr" if result["environment"]["icount"] else "ns"
        out += ["", "%-37s%*s" % ("limits of this machine", width, unit)]
        out += ["%-37s%*s" % (name, width, cell(found, 1)) for name, found in result["limits"].items()]
    return "\n".join(out + [""] + statement(result))


def statement(result):
    """What a reader must know to judge the figures."""
    about = result["environment"]
    rounds = max((len(f) for _, _, found in lines(result) for f in found.values()), default=0)
    out = [f"kernel {about['kernel']}, {about['cpus']} CPUs ({about['cpu']})",
           f"machine: {about['machine']}; load at the begin {about['load']}",
           f"commit {about['commit']}, {about['begin']}",
           f"perftest {about['perftest']}, MTU {about['mtu']}",
           f"median of {rounds}" + (", ± half of the range" if rounds > 1 else "")]
    if about["icount"]:
        out.append("instructions of both ends and the kernel on one CPU; send tests wait for events")
    out += ["distorted: " + text for text in about["distortions"]]
    out += ["left out: " + text for text in result["left_out"]]
    return out


def to_csv(result):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "bytes", "metric", "unit", "subject", "median", "least", "most", "rounds"])
    for row, metric, found in lines(result):
        unit, factor, _ = METRICS[metric]
        for subject, values in found.items():
            if values:
                writer.writerow([row["label"], row["bytes"], metric, unit, subject, f"{median(values) * factor:.6g}",
                                 f"{min(values) * factor:.6g}", f"{max(values) * factor:.6g}", len(values)])
    for name, values in result["limits"].items():
        writer.writerow([name, "", "limit", "ns", "", f"{median(values):.6g}", f"{min(values):.6g}", f"{max(values):.6g}",
                         len(values)])
    return out.getvalue()


def verdict(before, after, more_is_better, icount):
    """What a change means: "better", "worse", "same", or "unsure" where one round of a clock says nothing."""
    change = median(after) / median(before) - 1
    spreads = [spread(before), spread(after)]
    if None in spreads and not icount:
        return change, "unsure"
    if abs(change) <= max(LEAST_CHANGE, sum(part or 0 for part in spreads)):
        return change, "same"
    if more_is_better is None:
        return change, "better" if abs(median(after) - 0.5) < abs(median(before) - 0.5) else "worse"
    return change, "better" if (change > 0) == more_is_better else "worse"


def compare(before, after):
    """Yields the lines that compare two results."""
    if before["environment"]["icount"] != after["environment"]["icount"]:
        raise Unusable("one file counts instructions and the other measures time")
    for key in ("kernel", "cpu", "cpus", "machine", "perftest"):
        old, new = before["environment"][key], after["environment"][key]
        if old != new:
            yield f"the {key} differs: {old}; {new}"
    icount = before["environment"]["icount"]
    yield f"{'':26}{'':11}{'':17}{'before':>14}{'after':>14}{'change':>9}"
    count = {"better": 0, "worse": 0, "same": 0, "unsure": 0}
    other = {(row["label"], metric): found for row, metric, found in lines(after)}
    for row, metric, found in lines(before):
        if metric in ("gbits", "cpu_gib"):
            # The figure of one message has changed by the same part.
            continue
        for subject, old in found.items():
            new = other.get((row["label"], metric), {}).get(subject)
            if not old or not new or not median(old):
                continue
            unit, factor, more = METRICS[metric]
            change, word = verdict(old, new, more, icount)
            count[word] += 1
            yield (f"{row['label']:26}{unit:11}{subject:17}{cell(old, factor):>14}{cell(new, factor):>14}"
                   f"{change * 100:>+8.1f}%  {word if word != 'same' else ''}").rstrip()
    yield ", ".join(f"{n} {word}" for word, n in count.items() if n) or "the files have no measurement in common"
