#!/usr/bin/env python3
"""Draws the floors of the tree as docs/rooms.svg: every room, above all that it needs.

  testing/rooms/draw_rooms.py           writes docs/rooms.svg
  testing/rooms/draw_rooms.py --check   exit status 1 when docs/rooms.svg is not what would be written

A line is a need that does not follow from others. Needs of tests are left out, and so are rooms for tests alone.
"""

import math
import os
import sys

import check_rooms
import tree as tree_module

BOX_WIDTH = 164
BOX_HEIGHT = 30
LINE_WIDTH = 26  # the room of a line that passes a floor
GAP = 18
FLOOR = 66
MARGIN = 20

# Families of rooms, each with its colours on light and on dark ground.
FAMILIES = {
    "kvm/base": ("#57606a", "#8b949e"),
    "kvm/kernels": ("#bc4c00", "#f0883e"),
    "kvm/state": ("#1a7f37", "#3fb950"),
    "kvm/model": ("#0969da", "#58a6ff"),
    "kvm/io": ("#8250df", "#a371f7"),
    "kvm": ("#9a6700", "#d29922"),
    "tools": ("#cf222e", "#ff7b72"),
}


def _family(room):
    return max((f for f in FAMILIES if room == f or room.startswith(f + "/")), key=len)


def needs_of(tree):
    """Room -> the rooms it needs, less those that follow. Of rooms with libraries or programs that are not testonly."""
    rooms = {t.folder for t in tree.targets.values() if t.kind.startswith("cc_") and not t.testonly}
    rooms = {r for r in rooms if r.split("/")[0] != "testing"}
    graph = {a: {b for b in bs if b in rooms} for a, bs in check_rooms.graph(tree).items() if a in rooms}

    def below(room):
        found = set()
        for other in graph[room]:
            found |= {other} | below(other)
        return found

    reduced = {a: sorted(b for b in bs if not any(b in below(c) for c in bs)) for a, bs in graph.items()}
    needed = set().union(*reduced.values())
    return {a: bs for a, bs in sorted(reduced.items()) if bs or a in needed}


class _Node:
    """A room on its floor, or, without a name, a line that passes the floor."""

    def __init__(self, name, floor):
        self.name = name
        self.floor = floor
        self.width = BOX_WIDTH if name else LINE_WIDTH
        self.x = 0.0
        self.lower = []
        self.upper = []


def _join(upper, lower):
    upper.lower.append(lower)
    lower.upper.append(upper)


def _floors(needs):
    """Lists of nodes, ground first. A room lies above all that it needs; lines get a place on each floor they pass."""
    height = {}

    def floor_of(room):
        if room not in height:
            height[room] = 1 + max((floor_of(r) for r in needs[room]), default=-1)
        return height[room]

    rooms = {r: _Node(r, floor_of(r)) for r in needs}
    floors = [[] for _ in range(1 + max(height.values()))]
    order = list(FAMILIES)
    for room in sorted(needs, key=lambda r: (order.index(_family(r)), r)):
        floors[height[room]].append(rooms[room])
    for room in sorted(needs):
        for lower in needs[room]:
            at = rooms[room]
            for floor in range(height[room] - 1, height[lower], -1):
                passing = _Node("", floor)
                floors[floor].append(passing)
                _join(at, passing)
                at = passing
            _join(at, rooms[lower])
    return floors


def _mean(nodes, otherwise):
    return math.fsum(n.x for n in nodes) / len(nodes) if nodes else otherwise


def _spread(floor, wanted):
    """Gives the nodes of a floor, in their order, places near the wanted ones that do not overlap."""
    groups = []  # of nodes that touch: [sum of wanted starts, count, nodes, width before each]
    for node in floor:
        groups.append([wanted[node] - node.width / 2, 1, [node], node.width + GAP])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] + groups[-2][3] > groups[-1][0] / groups[-1][1]:
            last = groups.pop()
            groups[-1][0] += last[0] - last[1] * groups[-1][3]
            groups[-1][1] += last[1]
            groups[-1][2] += last[2]
            groups[-1][3] += last[3]
    for start, count, nodes, _ in groups:
        x = start / count
        for node in nodes:
            node.x = x + node.width / 2
            x += node.width + GAP


def _place(floors):
    for floor in floors:
        _spread(floor, {n: 0.0 for n in floor})
    for sweep in range(24):
        for floor in floors if sweep % 2 == 0 else floors[::-1]:
            near = {n: _mean(n.lower if sweep % 2 == 0 else n.upper, n.x) for n in floor}
            if sweep < 16:
                floor.sort(key=lambda n: near[n])
            _spread(floor, near)
    for _ in range(8):
        for floor in floors:
            _spread(floor, {n: _mean(n.lower + n.upper, n.x) for n in floor})


def draw(needs):
    """The picture of rooms and what each needs."""
    floors = _floors(needs)
    _place(floors)
    nodes = [n for floor in floors for n in floor]
    left = min(n.x - n.width / 2 for n in nodes) - MARGIN
    width = max(n.x + n.width / 2 for n in nodes) + MARGIN - left
    height = len(floors) * FLOOR - (FLOOR - BOX_HEIGHT) + 2 * MARGIN

    def top(node):
        return MARGIN + (len(floors) - 1 - node.floor) * FLOOR

    svg = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img">' % (
        width, height, width)]
    svg.append("<title>The rooms of kvm: each stands on those that its lines go down to</title>")
    style = ["text{font:13px system-ui,sans-serif;text-anchor:middle;fill:#1f2328}rect{fill:#fff;stroke-width:1.5}"
             "path{fill:none;stroke:#8c959f;stroke-width:1.2}"]
    style += [".f%d{stroke:%s}" % (i, light) for i, (light, _) in enumerate(FAMILIES.values())]
    style.append("@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22}path{stroke:#6e7681}")
    style += [".f%d{stroke:%s}" % (i, dark) for i, (_, dark) in enumerate(FAMILIES.values())]
    svg.append("<style>%s}</style>" % "".join(style))
    for node in nodes:
        if not node.name:
            continue
        for lower in node.lower:
            x, y = node.x - left, top(node) + BOX_HEIGHT
            path = "M%.1f %.1f" % (x, y)
            while True:
                to_x, to_y = lower.x - left, top(lower)
                middle = (y + to_y) / 2
                path += "C%.1f %.1f %.1f %.1f %.1f %.1f" % (x, middle, to_x, middle, to_x, to_y)
                if lower.name:
                    break
                x, y = to_x, to_y + BOX_HEIGHT
                path += "V%.1f" % y
                lower = lower.lower[0]
            svg.append('<path d="%s"/>' % path)
    families = list(FAMILIES)
    for node in nodes:
        if node.name:
            x, y = node.x - left, top(node)
            svg.append('<rect class="f%d" x="%.1f" y="%.1f" width="%d" height="%d" rx="6"/>' % (
                families.index(_family(node.name)), x - BOX_WIDTH / 2, y, BOX_WIDTH, BOX_HEIGHT))
            svg.append('<text x="%.1f" y="%.1f">%s</text>' % (
                x, y + BOX_HEIGHT / 2 + 4.5, node.name.replace("kvm/", "")))
    svg.append("</svg>")
    return "\n".join(svg) + "\n"


def main():
    root = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
    path = os.path.join(root, "docs", "rooms.svg")
    picture = draw(needs_of(tree_module.Tree(root)))
    if sys.argv[1:] == ["--check"]:
        with open(path, encoding="utf-8") as file:
            if file.read() != picture:
                print("docs/rooms.svg is not the picture of this tree: run testing/rooms/draw_rooms.py.")
                return 1
        return 0
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
