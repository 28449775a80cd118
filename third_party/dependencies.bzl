"""External dependencies of kvm. A workspace that uses kvm loads this file and calls kvm_dependencies().

Every archive's first URL ends in a name of its own, by which Bazel looks for it in a --distdir; GitHub serves a tag's
archive under any name. make_distdir.py reads this file as well: keep it valid Python.
"""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load("//third_party/coverage:coverage_tools.bzl", "coverage_tools")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")

def kvm_dependencies():
    """Declares every external repository; one that the caller already declared is left alone."""
    maybe(
        http_archive,
        name = "rules_cc",
        patch_args = ["-p1"],
        patches = [Label("//third_party/patches:rules_cc_bazel4.patch")],
        sha256 = "af6cc82d87db94585bceeda2561cb8a9d55ad435318ccb4ddfee18a43580fb5d",
        strip_prefix = "rules_cc-0.0.4",
        urls = ["https://github.com/bazelbuild/rules_cc/releases/download/0.0.4/rules_cc-0.0.4.tar.gz"],
    )
    maybe(
        http_archive,
        name = "rules_java",
        sha256 = "34b41ec683e67253043ab1a3d1e8b7c61e4e8edefbcad485381328c934d072fe",
        urls = ["https://github.com/bazelbuild/rules_java/releases/download/4.0.0/rules_java-4.0.0.tar.gz"],
    )
    maybe(
        http_archive,
        name = "rules_proto",
        sha256 = "66bfdf8782796239d3875d37e7de19b1d94301e8972b3cbd2446b332429b4df1",
        strip_prefix = "rules_proto-4.0.0",
        urls = ["https://github.com/bazelbuild/rules_proto/archive/refs/tags/4.0.0/rules_proto-4.0.0.tar.gz"],
    )
    maybe(
        http_archive,
        name = "platforms",
        sha256 = "d62cb553b378d2acb4e63de21dce82d025ce2ef2bdfcee2c2b742788314df0b1",
        strip_prefix = "platforms-0.0.2",
        urls = ["https://github.com/bazelbuild/platforms/archive/refs/tags/0.0.2/platforms-0.0.2.tar.gz"],
    )
    maybe(
        http_archive,
        name = "bazel_skylib",
        sha256 = "7ac0fa88c0c4ad6f5b9ffb5e09ef81e235492c873659e6bb99efb89d11246bcb",
        strip_prefix = "bazel-skylib-1.0.3",
        urls = ["https://github.com/bazelbuild/bazel-skylib/archive/refs/tags/1.0.3/bazel-skylib-1.0.3.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_google_absl",
        sha256 = "91ac87d30cc6d79f9ab974c51874a704de9c2647c40f6932597329a282217ba8",
        strip_prefix = "abseil-cpp-20220623.1",
        urls = ["https://github.com/abseil/abseil-cpp/archive/refs/tags/20220623.1/abseil-cpp-20220623.1.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_google_googletest",
        sha256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
        strip_prefix = "googletest-release-1.12.1",
        urls = ["https://github.com/google/googletest/archive/refs/tags/release-1.12.1/googletest-release-1.12.1.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_github_google_benchmark",
        sha256 = "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
        strip_prefix = "benchmark-1.7.1",
        urls = ["https://github.com/google/benchmark/archive/refs/tags/v1.7.1/benchmark-1.7.1.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_github_google_glog",
        build_file = Label("//third_party:glog.BUILD"),
        sha256 = "8a83bf982f37bb70825df71a9709fa90ea9f4447fb3c099e1d720a439d88bad6",
        strip_prefix = "glog-0.6.0",
        urls = ["https://github.com/google/glog/archive/refs/tags/v0.6.0/glog-0.6.0.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_google_highway",
        build_file = Label("//third_party:highway.BUILD"),
        sha256 = "566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e",
        strip_prefix = "highway-1.0.3",
        urls = ["https://github.com/google/highway/archive/refs/tags/1.0.3/highway-1.0.3.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_google_protobuf",
        build_file = Label("//third_party:protobuf.BUILD"),
        sha256 = "930c2c3b5ecc6c9c12615cf5ad93f1cd6e12d0aba862b572e076259970ac3a53",
        strip_prefix = "protobuf-3.21.12",
        urls = ["https://github.com/protocolbuffers/protobuf/archive/refs/tags/v3.21.12/protobuf-3.21.12.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_github_nlohmann_json",
        build_file = Label("//third_party:nlohmann_json.BUILD"),
        sha256 = "d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273",
        strip_prefix = "json-3.11.2",
        urls = ["https://github.com/nlohmann/json/archive/refs/tags/v3.11.2/nlohmann_json-3.11.2.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_github_pcre2",
        build_file = Label("//third_party:pcre2.BUILD"),
        sha256 = "c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f",
        strip_prefix = "pcre2-10.42",
        urls = ["https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz"],
    )
    maybe(
        http_archive,
        name = "com_github_utf8proc",
        build_file = Label("//third_party:utf8proc.BUILD"),
        sha256 = "a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc",
        strip_prefix = "utf8proc-2.8.0",
        urls = ["https://github.com/JuliaStrings/utf8proc/archive/refs/tags/v2.8.0/utf8proc-2.8.0.tar.gz"],
    )
    maybe(coverage_tools, name = "remote_coverage_tools")
    maybe(cuda_configure, name = "local_cuda")
