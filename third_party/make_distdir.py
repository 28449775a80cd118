#!/usr/bin/env python3
"""Fills a folder for Bazel's --distdir from Debian's source packages.

  make_distdir.py DISTDIR [REPOSITORY_CACHE]

The archives are those that dependencies.bzl names, with the sha256 it names. Debian's "orig" archives are either the
upstream files themselves or differ from them in compression or in the name of the top folder, which is undone here.
What DISTDIR or Bazel's repository cache already has is left alone, and nothing at all is done where the first missing
archive's upstream address answers: Bazel downloads it from there. Exit status 1 says that some archives are missing.
"""

import gzip
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request
import zlib


def unchanged(data):
    return data


def gzip_as_git(tar):
    """The bytes of `gzip -n`, which is how `git archive` compresses; Python's zlib may choose others."""
    return subprocess.run(["gzip", "-cn"], input=tar, stdout=subprocess.PIPE, check=True).stdout


def xz_to_gzip(data):
    return gzip_as_git(lzma.decompress(data))


def xz_to_rules_java(data):
    """A release file written by Bazel's pkg_tar: best compression, a fixed time and the name in gzip's header."""
    tar = lzma.decompress(data)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(tar) + deflate.flush()
    has_name, fixed_time, best, unknown_system = 8, 946684800, 2, 255
    header = struct.pack("<BBBBIBB", 0x1F, 0x8B, 8, has_name, fixed_time, best, unknown_system)
    return header + b"rules_java-4.0.0.tar\0" + body + struct.pack("<II", zlib.crc32(tar), len(tar))


def rename_abseil(data):
    """Renames the top folder from Debian's abseil-* to upstream's abseil-cpp-* in every tar header."""
    old, new = b"abseil-20220623.1/", b"abseil-cpp-20220623.1/"
    block = 512
    tar = gzip.decompress(data)
    out = bytearray()
    at = 0
    while any(tar[at : at + block]):
        header = bytearray(tar[at : at + block])
        padded_size = (int(header[124:135], 8) + block - 1) // block * block
        if header[156:157] not in b"gx":  # all but pax headers name a file in the folder
            name = header[:100].rstrip(b"\0")
            if not name.startswith(old):
                raise ValueError("unexpected member %r" % bytes(name))
            header[:100] = (new + name[len(old) :]).ljust(100, b"\0")
            header[148:156] = b" " * 8  # the checksum counts its own field as spaces
            header[148:156] = b"%07o\0" % sum(header)
        out += header + tar[at + block : at + block + padded_size]
        at += block + padded_size
    out += bytes(2 * block)
    out += bytes(-len(out) % (20 * block))
    return gzip_as_git(bytes(out))


# The archive's name -> Debian's source package and what turns its orig into the archive.
FROM_DEBIAN = {
    "abseil-cpp-20220623.1.tar.gz": ("abseil", rename_abseil),
    "bazel-skylib-1.0.3.tar.gz": ("bazel-skylib", xz_to_gzip),
    "benchmark-1.7.1.tar.gz": ("benchmark", unchanged),
    "glog-0.6.0.tar.gz": ("google-glog", unchanged),
    "googletest-release-1.12.1.tar.gz": ("googletest", unchanged),
    "highway-1.0.3.tar.gz": ("highway", unchanged),
    "nlohmann_json-3.11.2.tar.gz": ("nlohmann-json3", unchanged),
    "pcre2-10.42.tar.gz": ("pcre2", unchanged),
    "platforms-0.0.2.tar.gz": ("bazel-platforms", xz_to_gzip),
    "protobuf-3.21.12.tar.gz": ("protobuf", unchanged),
    "rules_cc-0.0.4.tar.gz": ("bazel-rules-cc", xz_to_gzip),
    "rules_java-4.0.0.tar.gz": ("bazel-rules-java", xz_to_rules_java),
    "rules_proto-4.0.0.tar.gz": ("bazel-rules-proto", xz_to_gzip),
    "utf8proc-2.8.0.tar.gz": ("utf8proc", unchanged),
}


def declared_archives(bzl):
    """[(name, url, sha256)] of every http_archive in dependencies.bzl, which is a Python program, too."""
    found = []

    def maybe(rule, name, **attributes):
        if rule == "http_archive":
            url = attributes["urls"][0]
            found.append((url.rpartition("/")[2], url, attributes["sha256"]))

    def load(_, *names):
        for name in names:
            scope.setdefault(name, name)

    scope = {"Label": str, "load": load, "maybe": maybe}
    exec(compile(bzl.read_text(), str(bzl), "exec"), scope)
    scope["kvm_dependencies"]()
    return found


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_present(name, digest, distdir, repository_cache):
    path = distdir / name
    if path.exists() and sha256(path.read_bytes()) == digest:
        return True
    cached = repository_cache and repository_cache / "content_addressable/sha256" / digest / "file"
    return bool(cached) and cached.exists()


def answers(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=3):
            return True
    except OSError:
        return False


class DebianSources:
    """The source packages of this machine's apt sources, read with package lists of our own in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        parts = folder / "sources"
        parts.mkdir()
        etc = pathlib.Path("/etc/apt")
        for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
            if path.suffix == ".sources":
                text = re.sub(r"(?mi)^types:.*$", "Types: deb-src", path.read_text())
            elif path.suffix == ".list" and path.exists():
                lines = [line for line in path.read_text().splitlines() if re.match(r"\s*deb\s", line)]
                text = "".join(re.sub(r"^\s*deb\s", "deb-src ", line) + "\n" for line in lines)
            else:
                continue
            (parts / path.name).write_text(text)
        for name in ["lists/partial", "cache/archives/partial"]:
            (folder / name).mkdir(parents=True)
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": parts,
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::http::Timeout": 20,
            "Acquire::https::Timeout": 20,
            "Acquire::Retries": 1,
        }
        self.apt = ["apt-get", "-qq"] + ["-o%s=%s" % option for option in options.items()]
        self.run("update")  # a source that fails is no harm as long as another has the packages

    def run(self, *arguments):
        subprocess.run(
            self.apt + list(arguments),
            check=False,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def orig(self, package):
        """The bytes of the package's orig archive; None when it cannot be had. Debian's own patches are not needed."""
        self.run("source", "--download-only", "--tar-only", package)
        paths = list(self.folder.glob(package + "_*.orig.tar.*"))
        return paths[0].read_bytes() if len(paths) == 1 else None


def write_atomically(path, data):
    partial = path.with_name("%s.%d" % (path.name, os.getpid()))
    partial.write_bytes(data)
    partial.replace(path)


def fetch(sources, name, digest, distdir):
    """True when `name`, with the right bytes, is now in `distdir`."""
    package, restore = FROM_DEBIAN.get(name, (None, None))
    orig = package and sources.orig(package)
    if not orig:
        return False
    try:
        data = restore(orig)
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error):
        return False  # another version of the package, packed another way
    if sha256(data) != digest:
        return False
    write_atomically(distdir / name, data)
    return True


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    distdir = pathlib.Path(arguments[0])
    distdir.mkdir(parents=True, exist_ok=True)
    repository_cache = pathlib.Path(arguments[1]) if len(arguments) == 2 else None
    archives = declared_archives(pathlib.Path(__file__).resolve().with_name("dependencies.bzl"))
    missing = [a for a in archives if not is_present(a[0], a[2], distdir, repository_cache)]
    if not missing or answers(missing[0][1]):
        return 0
    if not shutil.which("apt-get"):
        print("%d archives are missing and this is no Debian to take them from" % len(missing), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        sources = DebianSources(pathlib.Path(folder))
        lost = [name for name, _, digest in missing if not fetch(sources, name, digest, distdir)]
    if lost:
        print("Debian's source packages did not give: " + ", ".join(lost), file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
