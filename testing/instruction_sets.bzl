"""Tests that also run with the kernels held to narrower vectors than this machine has."""

# One of each width below the widest; machines that lack one skip it.
_INSTRUCTION_SETS = ["SSE4", "AVX2"]

def cc_test_on_instruction_sets(name, deps, **kwargs):
    """cc_test NAME with the best instruction set, and NAME_sse4, NAME_avx2, ... with others.

    Args:
      name: of the test as it is.
      deps: without gtest_main.
      **kwargs: what cc_test takes.
    """
    native.cc_test(
        name = name,
        deps = deps + ["@com_google_googletest//:gtest_main"],
        **kwargs
    )
    for instruction_set in _INSTRUCTION_SETS:
        native.cc_test(
            name = name + "_" + instruction_set.lower(),
            args = ["--instruction_set=" + instruction_set],
            deps = deps + ["//testing:instruction_set_main"],
            **kwargs
        )
