#!/usr/bin/env python3
"""Holds the tree against its floors (floors.py): says what goes up, in a sentence a finding.

  testing/rooms/check_rooms.py [ROOT]

Reads sources and BUILD files, builds nothing. Exit status 0: nothing is to be said.
"""

import os
import re
import sys

import floors
import tree as tree_module

EXACT = "-ffp-contract=off"


class Plan:
    """Who may know whom. What floors.py says, or a made-up one for tests."""

    def __init__(self, stands_on, for_tests=(), for_programs=(), light=None, parts=(), public_headers=None,
                 most_files=42):
        self.stands_on = stands_on
        self.for_tests = for_tests
        self.for_programs = for_programs
        self.light = light or {}
        self.parts = parts
        self.public_headers = public_headers
        self.most_files = most_files

    @staticmethod
    def ours():
        return Plan(floors.STANDS_ON, floors.FOR_TESTS, floors.FOR_PROGRAMS, floors.LIGHT, floors.PARTS,
                    floors.PUBLIC_HEADERS, floors.MOST_FILES)

    def below(self, room):
        """All that `room` may know."""
        known = set()
        queue = [room]
        while queue:
            for lower in self.stands_on.get(queue.pop(), []):
                if lower not in known:
                    known.add(lower)
                    queue.append(lower)
        return known

    def may_know(self, room, other, for_test):
        if room == other or other in self.below(room):
            return True
        if room.split("/")[0] == "testing":  # tests of the whole: they need no loop, and that is all
            return True
        return for_test and any(other == t or other.startswith(t + "/") for t in self.for_tests)


def edges(tree):
    """(room, other room, whether only tests need it, one place that says so) of all that crosses rooms."""
    is_test = {f: True for f in tree.includes}
    for target in tree.targets.values():
        for file in target.files:
            is_test[file] = is_test.get(file, True) and target.testonly
    owned = {f for t in tree.targets.values() for f in t.files}
    for source, includes in tree.includes.items():
        room = tree.room(source)
        for include in includes:
            other = tree.room(include)
            if other != room:
                yield room, other, is_test[source] and source in owned, "%s includes %s" % (source, include)
    for target in tree.targets.values():
        for dep in target.deps:
            other = dep[2:].split(":")[0]
            if dep.startswith("//") and other != target.folder and other.split("/")[0] in tree_module.TOPS:
                yield target.folder, other, target.testonly, "%s depends on %s" % (target.label, dep)


def graph(tree):
    """Room -> rooms that its libraries and programs need; what only tests need is left out."""
    needs = {room: set() for room in tree.folders}
    for room, other, for_test, _ in edges(tree):
        if not for_test:
            needs.setdefault(room, set()).add(other)
    return needs


def _check_floors(tree, plan):
    for room in sorted(tree.folders):
        if room.split("/")[0] != "testing" and "BUILD" in tree.folders[room] and room not in plan.stands_on:
            if any(t.folder == room and t.kind.startswith("cc_") for t in tree.targets.values()):
                yield "%s has no floor: floors.py does not say what it stands on." % room
    for room, other, for_test, place in edges(tree):
        floors_known = all(r in plan.stands_on or r.split("/")[0] == "testing" for r in (room, other))
        if floors_known and not plan.may_know(room, other, for_test):
            yield "%s, and %s does not stand on %s." % (place, room, other)


def _check_loops(tree):
    needs = graph(tree)
    done = set()

    def visit(room, path):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return None
        for other in sorted(needs.get(room, ())):
            loop = visit(other, path + [room])
            if loop:
                return loop
        done.add(room)
        return None

    for room in sorted(needs):
        loop = visit(room, [])
        if loop:
            yield "Rooms need each other in a loop: %s." % " → ".join(loop)
            return


def _check_sizes(tree, plan):
    for folder, files in sorted(tree.folders.items()):
        if len(files) > plan.most_files:
            yield "%s holds %d files, expected at most %d: look for the seam." % (folder, len(files), plan.most_files)


def _check_deps_of_includes(tree):
    owners = tree.owners()
    for target in tree.targets.values():
        for source in target.files:
            for include in tree.includes.get(source, []):
                having = owners.get(include)
                if not having:
                    yield "%s includes %s, which no target declares." % (source, include)
                elif target.label not in having and not having & set(target.deps):
                    yield "%s includes %s, and %s does not depend on %s." % (
                        source, include, target.label, " or ".join(sorted(having)))


def _check_weight(tree, plan):
    for label, target in sorted(tree.targets.items()):
        if target.folder.split("/")[0] != "kvm" or target.testonly:
            continue
        for dep in target.deps:
            if dep.startswith(tuple(plan.for_programs)):
                yield "%s depends on %s, which is for programs and tests." % (label, dep)
    for label, without in sorted(plan.light.items()):
        if label not in tree.targets:
            yield "%s is said to be light, and there is none." % label
            continue
        for dep, way in sorted(tree.reaches(label).items()):
            if dep.startswith(tuple(without)):
                yield "%s should do without %s: %s." % (label, dep, " → ".join(way))


def _check_exact(tree):
    for label, target in sorted(tree.targets.items()):
        if target.kind != "cc_library" or target.testonly or target.folder.split("/")[0] != "kvm":
            continue
        for source in target.sources:
            floats = source.endswith(".cc") and re.search(r"\b(float|double)\b", tree.text(source))
            if floats and EXACT not in target.copts:
                yield "%s computes with floats (%s): its copts need EXACT of //kvm/base:copts.bzl." % (label, source)
                break


def _check_public(tree, plan):
    owners = tree.owners()
    for folder, package in sorted(tree.defaults.items()):
        if folder.split("/")[0] == "kvm" and "//visibility:public" in package.get("default_visibility", []):
            yield "%s: targets are public by default; expected those that others want to say so themselves." % folder
    included = set(tree.included(plan.public_headers)) if plan.public_headers else None
    for label, target in sorted(tree.targets.items()):
        if target.folder.split("/")[0] != "kvm" or not target.public:
            continue
        for header in target.headers:
            for include in tree.includes.get(header, []):
                having = [tree.targets[o] for o in sorted(owners.get(include, ()))]
                if having and target not in having and not any(o.public or o.label in plan.parts for o in having):
                    yield "%s is public, and its header includes %s, which is not." % (label, having[0].label)
            if included is not None and header not in included and not needs_toolkit(tree, target):
                yield "%s is public, and %s does not include %s." % (label, plan.public_headers, header)


def needs_toolkit(tree, target):
    """Whether a target is part of a build only where there is a CUDA toolkit."""
    return any(dep.startswith("@local_cuda") for dep in tree.reaches(target.label))


_LABEL = re.compile(r"(?<![\w/:.])(?:@kvm)?//((?:kvm|tools|testing)(?:/\w+)*)(?::([\w.-]*\w))?(/\.\.\.)?")
_PATH = re.compile(r"(?<![\w/.:-])((?:kvm|tools|testing)/[\w/-]+\.(?:h|cc|cu|proto|py|bzl|md))\b")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def _check_pages(tree):
    """What README.md and docs/ name is there: labels, paths but for those with a NAME to fill in, and ends of links."""
    packages = {f for f in tree.folders if "BUILD" in tree.folders[f]}
    for page, text in sorted(tree.pages().items()):
        for folder, name, below in _LABEL.findall(text):
            label = "//%s:%s" % (folder, name or folder.rsplit("/", 1)[-1])
            there = tree.exists(folder) if below else label in tree.targets if name else folder in packages
            if not there and not tree.exists("%s/%s" % (folder, name)):
                yield "%s names %s, which is not there." % (page, label if name else "//" + folder)
        for path in _PATH.findall(text):
            if "NAME" not in path and not tree.exists(path):
                yield "%s names %s, which is not there." % (page, path)
        for path in _LINK.findall(text):
            if not tree.exists(os.path.normpath(os.path.join(os.path.dirname(page), path))):
                yield "%s links to %s, which is not there." % (page, path)


def findings(tree, plan):
    """All that is wrong, a sentence each, in a fixed order."""
    checks = [
        _check_floors(tree, plan),
        _check_loops(tree),
        _check_sizes(tree, plan),
        _check_deps_of_includes(tree),
        _check_weight(tree, plan),
        _check_exact(tree),
        _check_public(tree, plan),
        _check_pages(tree),
    ]
    return list(dict.fromkeys(sentence for check in checks for sentence in sorted(check)))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
    found = findings(tree_module.Tree(root), Plan.ours())
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
