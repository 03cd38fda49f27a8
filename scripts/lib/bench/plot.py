# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Draws the result of scripts/bench as SVG. It writes the few elements itself, so that a plot needs no package and is the same
for the same figures. It measures nothing."""
import math
from xml.sax.saxutils import escape

import plan
import results
import subjects

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 150, 46, 56
# Colours that remain different to colour-blind readers (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#555555"]


def plots(result):
    """Yields a file name and an SVG for each plot that the figures suffice for."""
    icount = result["environment"]["icount"]
    for prefix, name in (("write_bw", "write"), ("read_bw", "read"), ("send_bw", "send")):
        curves = {subject: points for subject in result["subjects"]
                  if len(points := curve(result, prefix, subject, "instructions" if icount else "rate")) > 1}
        if curves:
            what = "instructions a message" if icount else "Gb/s"
            yield f"{name}.svg", lines_plot(f"RDMA {name.upper()}: {what} by size of the message", curves, what, result)
    metric = "instructions" if icount else "median"
    bars = [(row["label"], {s: results.median(f) for s in result["subjects"] if (f := results.figures(result, row, s, metric))})
            for row in result["rows"] if row["kind"] == "latency"]
    bars = [(label, values) for label, values in bars if values]
    if bars:
        what = "instructions a message" if icount else "microseconds, median"
        yield "latency.svg", bars_plot(f"One message at a time: {what}", bars, what, result)


def curve(result, prefix, subject, metric):
    """Bytes and figure of the plain rows of one program, in the order of the sizes."""
    points = []
    for row in result["rows"]:
        if row["label"] == f"{prefix} {plan.size_text(row['bytes'])}":
            if values := results.figures(result, row, subject, metric):
                factor = row["bytes"] * 8e-9 if metric == "rate" else 1
                points.append((row["bytes"], results.median(values) * factor))
    return sorted(points)


def power_text(power):
    if power < 0:
        return f"{10.0 ** power:g}"
    unit = min(power // 3, 3)
    return f"{10 ** (power - 3 * unit)}{' kMG'[unit]}".strip()


def colour(name):
    """A subject has the same colour in all plots."""
    return COLOURS[subjects.NAMES.index(name)] if name in subjects.NAMES else COLOURS[-1]


class Picture:
    """An SVG that grows, and its vertical axis, which is logarithmic from one power of ten to another."""

    def __init__(self, title, what, values, result):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        about = result["environment"]
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12" fill="#222">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
        self.text(LEFT, 22, title, size=15)
        where = f"kernel {about['kernel']}, {about['cpus']} CPUs, {about['machine']}, commit {about['commit']}"
        self.text(LEFT, HEIGHT - 8, where, size=10)
        for power in range(self.low, self.high + 1):
            y = self.y(10.0 ** power)
            self.parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            self.text(LEFT - 8, y + 4, power_text(power), "end")
        self.parts.append(f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
                          f'text-anchor="middle">{escape(what)}</text>')

    def y(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)

    def text(self, x, y, text, anchor="start", size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
                          f"{escape(text)}</text>")

    def legend(self, names):
        for i, name in enumerate(names):
            y = TOP + 14 + 20 * i
            self.parts.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9}" width="14" height="10" fill="{colour(name)}"/>')
            self.text(WIDTH - RIGHT + 36, y, name)

    def svg(self):
        return "\n".join(self.parts + ["</svg>", ""])


def lines_plot(title, curves, what, result):
    picture = Picture(title, what, [value for points in curves.values() for _, value in points], result)
    sizes = sorted({size for points in curves.values() for size, _ in points})
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])

    def x(size):
        return LEFT + 12 + (math.log2(size) - first) / (last - first) * (WIDTH - RIGHT - LEFT - 24)

    for size in sizes:
        picture.text(x(size), HEIGHT - BOTTOM + 18, plan.size_text(size), "middle")
    for name, points in curves.items():
        path = "L".join(f"{x(size):.1f} {picture.y(value):.1f}" for size, value in points)
        picture.parts.append(f'<path d="M{path}" fill="none" stroke="{colour(name)}" stroke-width="2"/>')
        picture.parts += [f'<circle cx="{x(size):.1f}" cy="{picture.y(value):.1f}" r="3.5" fill="{colour(name)}"/>'
                          for size, value in points]
    picture.legend(list(curves))
    return picture.svg()


def bars_plot(title, bars, what, result):
    picture = Picture(title, what, [value for _, values in bars for value in values.values()], result)
    names = [s for s in result["subjects"] if any(s in values for _, values in bars)]
    group = (WIDTH - RIGHT - LEFT) / len(bars)
    width = group * 0.8 / len(names)
    for i, (label, values) in enumerate(bars):
        left = LEFT + i * group + group * 0.1
        picture.text(left + group * 0.4, HEIGHT - BOTTOM + 18, label, "middle", 10)
        for j, name in enumerate(names):
            if name in values:
                top = picture.y(values[name])
                picture.parts.append(f'<rect x="{left + j * width:.1f}" y="{top:.1f}" width="{width - 1:.1f}" '
                                     f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{colour(name)}"/>')
                picture.text(left + (j + 0.5) * width, top - 3, results.number(values[name]), "middle", 8)
    picture.legend(names)
    return picture.svg()
