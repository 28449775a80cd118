#!/usr/bin/env python3
"""The check of the rooms finds what it is there for, in made-up trees."""

import os
import tempfile
import unittest

import check_rooms
import tree as tree_module

PLAN = check_rooms.Plan(
    {"kvm/ground": [], "kvm/middle": ["kvm/ground"], "kvm/top": ["kvm/middle"], "kvm/aside": ["kvm/ground"]},
    for_tests=["testing"], for_programs=["@logs"], light={"//kvm/middle:b": ["@heavy"]}, parts=["//kvm/ground:part"],
    public_headers="kvm/top/public.inc", most_files=5)

# A house in order: top on middle on ground, and a test that uses what is for tests.
HOUSE = {
    "kvm/ground/BUILD": 'cc_library(name = "a", hdrs = ["a.h"])',
    "kvm/ground/a.h": "",
    "kvm/middle/BUILD": 'cc_library(name = "b", srcs = ["b.cc"], hdrs = ["b.h"], deps = ["//kvm/ground:a"])',
    "kvm/middle/b.h": '#include "kvm/ground/a.h"\n',
    "kvm/middle/b.cc": '#include "kvm/middle/b.h"\n',
    "kvm/aside/BUILD": 'cc_library(name = "d", hdrs = ["d.h"])',
    "kvm/aside/d.h": "",
    "kvm/top/BUILD": """
load(":rules.bzl", "tested_library")
tested_library(name = "c", deps = ["//kvm/ground:a", "//kvm/middle:b"])
""",
    "kvm/top/rules.bzl": '''
def tested_library(name, deps):
    """A macro, as in our tree."""
    native.cc_library(name = name, hdrs = [name + ".h"], deps = deps)
    native.cc_test(
        name = name + "_test",
        srcs = native.glob([name + "_test.*"]),
        deps = [":" + name, "//testing/tools:t"] + select({"//conditions:default": ["@gtest"]}),
    )
''',
    "kvm/top/public.inc": "",
    "kvm/top/c.h": '#include "kvm/ground/a.h"\n#include "kvm/middle/b.h"\n',
    "kvm/top/c_test.cc": '#include "kvm/top/c.h"\n#include "testing/tools/t.h"\n',
    "testing/tools/BUILD": 'cc_library(name = "t", testonly = True, hdrs = ["t.h"], deps = ["//kvm/top:c"])',
    "testing/tools/t.h": '#include "kvm/top/c.h"\n',
}


class CheckRoomsTest(unittest.TestCase):

    def findings(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in dict(HOUSE, **changes).items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_rooms.findings(tree_module.Tree(root), PLAN)

    def test_says_nothing_of_a_house_in_order(self):
        self.assertEqual(self.findings({}), [])

    def test_finds_what_goes_up(self):
        found = self.findings({
            "kvm/ground/BUILD": 'cc_library(name = "a", hdrs = ["a.h"], deps = ["//kvm/middle:b"])',
            "kvm/ground/a.h": '#include "kvm/middle/b.h"\n',
        })
        self.assertEqual(found, [
            "//kvm/ground:a depends on //kvm/middle:b, and kvm/ground does not stand on kvm/middle.",
            "kvm/ground/a.h includes kvm/middle/b.h, and kvm/ground does not stand on kvm/middle.",
            "Rooms need each other in a loop: kvm/ground → kvm/middle → kvm/ground.",
        ])

    def test_finds_what_goes_aside(self):
        found = self.findings({
            "kvm/middle/BUILD": HOUSE["kvm/middle/BUILD"].replace('["//kvm', '["//kvm/aside:d", "//kvm'),
        })
        self.assertEqual(found, [
            "//kvm/middle:b depends on //kvm/aside:d, and kvm/middle does not stand on kvm/aside."])

    def test_tests_go_up_no_more_than_libraries(self):
        found = self.findings({
            "kvm/middle/BUILD": HOUSE["kvm/middle/BUILD"] +
                                '\ncc_test(name = "b_test", srcs = ["b_test.cc"], deps = ["//kvm/top:c"])',
            "kvm/middle/b_test.cc": '#include "kvm/top/c.h"\n',
        })
        self.assertEqual(found, [
            "//kvm/middle:b_test depends on //kvm/top:c, and kvm/middle does not stand on kvm/top.",
            "kvm/middle/b_test.cc includes kvm/top/c.h, and kvm/middle does not stand on kvm/top.",
        ])

    def test_libraries_need_nothing_of_testing(self):
        found = self.findings({"kvm/top/c.h": HOUSE["kvm/top/c.h"] + '#include "testing/tools/t.h"\n'})
        self.assertIn("kvm/top/c.h includes testing/tools/t.h, and kvm/top does not stand on testing/tools.", found)

    def test_folders_without_a_build_file_are_part_of_the_room_above(self):
        self.assertEqual(self.findings({
            "kvm/middle/BUILD": HOUSE["kvm/middle/BUILD"].replace('["b.h"]', '["b.h", "parts/p.h"]'),
            "kvm/middle/parts/p.h": '#include "kvm/middle/b.h"\n',
            "kvm/middle/b.cc": '#include "kvm/middle/parts/p.h"\n',
        }), [])

    def test_every_room_has_a_floor(self):
        found = self.findings({
            "kvm/attic/BUILD": 'cc_library(name = "x", hdrs = ["x.h"], deps = ["//kvm/top:c"])',
            "kvm/attic/x.h": '#include "kvm/top/c.h"\n',
        })
        self.assertEqual(found, ["kvm/attic has no floor: floors.py does not say what it stands on."])

    def test_finds_includes_without_a_dep(self):
        found = self.findings({"kvm/middle/BUILD": 'cc_library(name = "b", srcs = ["b.cc"], hdrs = ["b.h"])'})
        self.assertEqual(found, [
            "kvm/middle/b.h includes kvm/ground/a.h, and //kvm/middle:b does not depend on //kvm/ground:a."])

    def test_finds_headers_of_no_target(self):
        found = self.findings({"kvm/ground/lost.h": "", "kvm/ground/a.h": '#include "kvm/ground/lost.h"\n'})
        self.assertEqual(found, ["kvm/ground/a.h includes kvm/ground/lost.h, which no target declares."])

    def test_finds_generated_headers(self):
        proto = {
            "kvm/ground/BUILD": """
proto_library(name = "p_proto", srcs = ["p.proto"])
cc_proto_library(name = "p_cc_proto", deps = [":p_proto"])
cc_library(name = "a", hdrs = ["a.h"], deps = [":p_cc_proto"])
""",
            "kvm/ground/a.h": '#include "kvm/ground/p.pb.h"\n',
        }
        self.assertEqual(self.findings(proto), [])
        proto["kvm/ground/BUILD"] = proto["kvm/ground/BUILD"].replace(', deps = [":p_cc_proto"]', "")
        self.assertEqual(self.findings(proto), [
            "kvm/ground/a.h includes kvm/ground/p.pb.h, and //kvm/ground:a does not depend on //kvm/ground:p_cc_proto.",
        ])

    def test_finds_full_rooms(self):
        found = self.findings({"kvm/ground/%d.md" % i: "" for i in range(4)})
        self.assertEqual(found, ["kvm/ground holds 6 files, expected at most 5: look for the seam."])

    def test_finds_what_libraries_and_light_targets_link(self):
        found = self.findings({
            "kvm/ground/BUILD": 'cc_library(name = "a", hdrs = ["a.h"], deps = ["@logs//:log", "@heavy//:x"])',
        })
        self.assertEqual(found, [
            "//kvm/ground:a depends on @logs//:log, which is for programs and tests.",
            "//kvm/middle:b should do without @heavy//:x: //kvm/middle:b → //kvm/ground:a → @heavy//:x.",
        ])

    def test_finds_floats_that_a_compiler_may_contract(self):
        changes = {"kvm/middle/b.cc": HOUSE["kvm/middle/b.cc"] + "float f(float x) { return x * x + 1; }\n"}
        self.assertEqual(self.findings(changes), [
            "//kvm/middle:b computes with floats (kvm/middle/b.cc): its copts need EXACT of //kvm/base:copts.bzl."])
        changes["kvm/base/copts.bzl"] = 'EXACT = ["-ffp-contract=off"]'
        changes["kvm/middle/BUILD"] = 'load("//kvm/base:copts.bzl", "EXACT")\n' + HOUSE["kvm/middle/BUILD"].replace(
            'name = "b"', 'name = "b", copts = EXACT + ["-O3"]')
        self.assertEqual(self.findings(changes), [])

    def test_finds_public_headers_that_need_others(self):
        changes = {
            "kvm/middle/BUILD": HOUSE["kvm/middle/BUILD"].replace(
                'name = "b"', 'name = "b", visibility = ["//visibility:public"]'),
            "kvm/top/public.inc": '#include "kvm/middle/b.h"\n',
        }
        self.assertEqual(self.findings(changes), [
            "//kvm/middle:b is public, and its header includes //kvm/ground:a, which is not."])
        changes["kvm/ground/BUILD"] = HOUSE["kvm/ground/BUILD"].replace(
            'name = "a"', 'name = "a", visibility = ["//visibility:public"]')
        changes["kvm/top/public.inc"] += '#include "kvm/ground/a.h"\n'
        self.assertEqual(self.findings(changes), [])

    def test_parts_of_public_headers_stay_private(self):
        self.assertEqual(self.findings({
            "kvm/ground/BUILD": 'cc_library(name = "part", hdrs = ["a.h"])',
            "kvm/middle/BUILD": 'cc_library(name = "b", hdrs = ["b.h"], srcs = ["b.cc"], deps = ["//kvm/ground:part"], '
                                'visibility = ["//visibility:public"])',
            "kvm/top/rules.bzl": HOUSE["kvm/top/rules.bzl"].replace(
                "deps = deps", 'deps = deps + ["//kvm/ground:part"]'),
            "kvm/top/BUILD": HOUSE["kvm/top/BUILD"].replace('"//kvm/ground:a", ', ""),
            "kvm/top/public.inc": '#include "kvm/middle/b.h"\n',
        }), [])

    def test_finds_public_headers_that_nobody_tries(self):
        self.assertEqual(self.findings({
            "kvm/ground/BUILD": 'cc_library(name = "a", hdrs = ["a.h"], visibility = ["//visibility:public"])',
        }), ["//kvm/ground:a is public, and kvm/top/public.inc does not include kvm/ground/a.h."])

    def test_finds_what_pages_name_and_is_not_there(self):
        self.assertEqual(self.findings({
            "README.md": "`//kvm/top:c`, `@kvm//kvm/top:c_test`, `//kvm/...`, kvm/top/c.h and [ground](kvm/ground#it)",
            "docs/page.md": "`//kvm/top:d`, `//kvm/roof`, kvm/top/d.h, https://kvm/x.h and [ground](kvm/ground)",
        }), [
            "docs/page.md links to kvm/ground, which is not there.",
            "docs/page.md names //kvm/roof, which is not there.",
            "docs/page.md names //kvm/top:d, which is not there.",
            "docs/page.md names kvm/top/d.h, which is not there.",
        ])

    def test_finds_rooms_that_are_public_by_default(self):
        self.assertEqual(self.findings({
            "kvm/aside/BUILD": 'package(default_visibility = ["//visibility:public"])\n'
                               'cc_library(name = "d", hdrs = ["d.h"], visibility = ["//visibility:private"])',
        }), ["kvm/aside: targets are public by default; expected those that others want to say so themselves."])


class FloorsTest(unittest.TestCase):

    def test_the_plan_has_no_loop_and_knows_what_it_names(self):
        plan = check_rooms.Plan.ours()
        for room, lower in plan.stands_on.items():
            self.assertNotIn(room, plan.below(room))
            for other in lower:
                self.assertIn(other, plan.stands_on)


if __name__ == "__main__":
    unittest.main()
