"""Reads the tree: what each BUILD file declares and what each source includes."""

import ast
import os
import re

# A path here is relative to the root, with slashes. Tops of the tree that hold code.
TOPS = ("kvm", "tools", "testing")

# Folders of data, and the workspace that is another.
_NO_ROOMS = re.compile(r"testing/(consumer|data|golden\w*|fuzz/corpus|peers)(/|$)")

_INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:kvm|tools|testing)/[^"]+)"', re.MULTILINE)
_SOURCES = (".h", ".cc", ".cu", ".cuh")


class Target:
    """One rule of a BUILD file: its kind, its label, and what it was given."""

    def __init__(self, kind, folder, arguments, package):
        self.kind = kind
        self.folder = folder
        self.name = arguments.get("name", "")
        self.label = "//%s:%s" % (folder, self.name)
        self.sources = [self._file(f) for f in arguments.get("srcs", [])]
        self.headers = [self._file(f) for f in arguments.get("hdrs", [])]
        self.headers += [self._file(f) for f in arguments.get("textual_hdrs", [])]
        self.deps = [self._dep(d) for d in arguments.get("deps", [])]
        self.copts = list(arguments.get("copts", []))
        self.visibility = arguments.get("visibility", package.get("default_visibility", []))
        default = package.get("default_testonly", False)
        self.testonly = bool(arguments.get("testonly", default)) or kind.endswith("_test")

    @property
    def files(self):
        return self.headers + self.sources

    @property
    def public(self):
        return "//visibility:public" in self.visibility

    def _file(self, name):
        return "%s/%s" % (self.folder, name.lstrip(":")) if not name.startswith(("//", "@")) else name

    def _dep(self, label):
        if label.startswith(":"):
            return "//%s%s" % (self.folder, label)
        if label.startswith("//") and ":" not in label:
            return "%s:%s" % (label, label.rsplit("/", 1)[-1])
        return label if label.startswith(("//", "@")) else "//%s:%s" % (self.folder, label)


class Tree:
    """What this reads of a tree.

    folders: path -> names of its files. targets: label -> Target. includes: source -> paths of ours that it includes.
    defaults: path -> what package() says in its BUILD file.
    """

    def __init__(self, root):
        self.root = root
        self.folders = {}
        self.targets = {}
        self.includes = {}
        self.defaults = {}
        for top in TOPS:
            for path, folders, files in os.walk(os.path.join(root, top)):
                folder = os.path.relpath(path, root).replace(os.sep, "/")
                folders[:] = sorted(f for f in folders if not f.startswith(("bazel-", "__pycache__")))
                if _NO_ROOMS.match(folder):
                    folders[:] = []
                    continue
                self._add_folder(folder, sorted(f for f in files if not f.endswith(".pyc")))

    def room(self, path):
        """The folder of a file, or the one above that has a BUILD file: folders without one are parts of that room."""
        folder = os.path.dirname(path)
        while folder and "BUILD" not in self.folders.get(folder, ()):
            folder = os.path.dirname(folder)
        return folder or os.path.dirname(path)

    def owners(self):
        """Path of a header -> labels of the targets that declare it, in generated headers those of the proto."""
        owners = {}
        for target in self.targets.values():
            for file in target.files:
                owners.setdefault(file, set()).add(target.label)
        for target in self.targets.values():
            if target.kind != "cc_proto_library":
                continue
            for dep in target.deps:
                for file in self.targets[dep].sources:
                    owners.setdefault(file.replace(".proto", ".pb.h"), set()).add(target.label)
        return owners

    def reaches(self, label):
        """Labels of all that a target is linked with, as far as this tree declares it, each with the way there."""
        ways = {label: [label]}
        queue = [label]
        while queue:
            at = queue.pop()
            for dep in self.targets[at].deps if at in self.targets else []:
                if dep not in ways:
                    ways[dep] = ways[at] + [dep]
                    queue.append(dep)
        return ways

    def _add_folder(self, folder, files):
        self.folders[folder] = files
        for name in files:
            path = "%s/%s" % (folder, name)
            if name.endswith(_SOURCES):
                self.includes[path] = _INCLUDE.findall(self.text(path))
            elif name in ("BUILD", "BUILD.bazel"):
                self.defaults[folder] = _Package(self, folder).read(path)

    def exists(self, path):
        return os.path.exists(os.path.join(self.root, path))

    def pages(self):
        """Path -> text of README.md and of the pages in docs/."""
        pages = {}
        for folder, _, files in os.walk(os.path.join(self.root, "docs")):
            for name in files:
                if name.endswith(".md"):
                    path = os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")
                    pages[path] = self.text(path)
        if self.exists("README.md"):
            pages["README.md"] = self.text("README.md")
        return pages

    def included(self, path):
        """What a source includes, wherever it lies; nothing if it is not there."""
        return _INCLUDE.findall(self.text(path)) if self.exists(path) else []

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()


class _Unknown:
    """Stands for what a BUILD file or its macros use and this reader needs nothing of."""

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        return self

    def __add__(self, other):
        return other

    __radd__ = __add__


class _Package:
    """Evaluates a BUILD file, which is Python as far as the language goes, and notes the rules that it calls."""

    def __init__(self, tree, folder):
        self._tree = tree
        self._folder = folder
        self._package = {}

    def read(self, path):
        """Returns what package() was given."""
        self._run(path)
        return self._package

    def _run(self, path):
        """Returns the names that the file defines. What it calls and nobody defined is taken for a rule."""
        text = self._tree.text(path)
        parsed = ast.parse(text, path)
        names = {}
        for node in ast.walk(parsed):
            if isinstance(node, ast.Name):
                names[node.id] = self._rule(node.id)
        for builtin in "all any bool dict enumerate len list range sorted str tuple zip".split():
            names.pop(builtin, None)
        names.update({
            "aspect": _Unknown(),
            "attr": _Unknown(),
            "fail": _Unknown(),
            "glob": self._glob,
            "load": lambda source, *symbols, **renamed: names.update(self._load(source, symbols, renamed)),
            "native": self,
            "rule": lambda **_: self._rule("rule"),
            "package": lambda **arguments: self._package.update(arguments),
            "select": lambda cases: sum((v for v in cases.values() if isinstance(v, list)), []),
        })
        exec(compile(parsed, path, "exec"), names)  # pylint: disable=exec-used
        return names

    # As `native`.
    def __getattr__(self, name):
        return {"glob": self._glob, "package_name": lambda: self._folder}.get(name) or self._rule(name)

    def _rule(self, kind):
        def declare(*_, **arguments):
            if isinstance(arguments.get("name"), str):
                target = Target(kind, self._folder, arguments, self._package)
                self._tree.targets[target.label] = target
            return _Unknown()

        return declare

    def _load(self, source, symbols, renamed):
        symbols = dict({s: s for s in symbols}, **renamed)
        if source.startswith("@"):
            return {name: self._rule(symbol) for name, symbol in symbols.items()}
        folder, _, name = source.rpartition(":")
        defined = self._run("%s/%s" % (folder[2:] or self._folder, name))
        return {name: defined[symbol] for name, symbol in symbols.items()}

    def _glob(self, include, exclude=(), **_):
        def matches(patterns):
            found = set()
            folder = os.path.join(self._tree.root, self._folder)
            for path, _, files in os.walk(folder):
                for file in files:
                    name = os.path.relpath(os.path.join(path, file), folder).replace(os.sep, "/")
                    if any(_pattern(p).fullmatch(name) for p in patterns):
                        found.add(name)
            return found

        return sorted(matches(include) - matches(exclude))


def _pattern(glob):
    return re.compile(re.escape(glob).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*"))
