"""A function that takes any bytes, as a fuzzer and as a test."""

def fuzz_target(name, deps, mutator = None, mutator_deps = []):
    """Makes NAME_fuzzer, which searches for inputs, and NAME_corpus_test, which replays those of corpus/NAME.

    NAME_fuzzer.cc defines LLVMFuzzerTestOneInput. The fuzzer needs --config=fuzz; the test runs in any configuration.

    Args:
      name: of the target, of its source and of its folder in corpus/.
      deps: of NAME_fuzzer.cc.
      mutator: a source that defines LLVMFuzzerCustomMutator, for formats whose checksums random changes would break.
      mutator_deps: of the mutator.
    """
    corpus = native.glob(["corpus/%s/*" % name])
    folder = native.package_name() + "/corpus/" + name
    native.cc_library(
        name = name + "_function",
        testonly = True,
        srcs = [name + "_fuzzer.cc"],
        alwayslink = True,
        deps = deps,
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        args = [folder],
        data = corpus,
        deps = [
            ":" + name + "_function",
            ":replay_main",
        ],
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = [mutator] if mutator else [],
        args = [
            "-malloc_limit_mb=16",
            "-max_len=32768",
            "-rss_limit_mb=2048",
            folder,
        ],
        data = corpus,
        linkopts = ["-fsanitize=fuzzer"],
        target_compatible_with = select({
            ":is_enabled": [],
            "//conditions:default": [":needs_config_fuzz"],
        }),
        deps = [":" + name + "_function"] + mutator_deps,
    )
