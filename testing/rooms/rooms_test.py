#!/usr/bin/env python3
"""The tree stands as floors.py says, and docs/rooms.svg shows it."""

import os
import unittest

import check_rooms
import draw_rooms
import tree as tree_module

# Not of the copies, or links, among which a test runs: of the sources themselves.
ROOT = os.path.join(os.path.dirname(os.path.realpath(check_rooms.__file__)), "..", "..")


class RoomsTest(unittest.TestCase):

    def test_the_tree_stands_on_its_floors(self):
        found = check_rooms.findings(tree_module.Tree(ROOT), check_rooms.Plan.ours())
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_the_tree_was_read(self):
        tree = tree_module.Tree(ROOT)
        self.assertIn("//kvm/model:language_model", tree.targets)
        self.assertIn("kvm/kernels/cpu/matmul.cc", tree.includes)

    def test_the_picture_is_of_this_tree(self):
        with open(os.path.join(ROOT, "docs", "rooms.svg"), encoding="utf-8") as file:
            committed = file.read()
        self.assertEqual(committed, draw_rooms.draw(draw_rooms.needs_of(tree_module.Tree(ROOT))),
                         "docs/rooms.svg is not the picture of this tree: run testing/rooms/draw_rooms.py")


if __name__ == "__main__":
    unittest.main()
