"""Files as data inside a binary, which then works from anywhere."""

def embed_data(name, files, **kwargs):
    """Makes a cc_library whose header, NAME.h, declares one function for each file, in namespace kvm:

        absl::string_view DemoText();

    Args:
      name: of the library and its header
      files: a dictionary from the label of a file to the name of its function
      **kwargs: passed on to the cc_library
    """
    tool = "//tools/embed:embed_data"
    arguments = " ".join(["%s=$(execpath %s)" % (function, label) for label, function in files.items()])
    native.genrule(
        name = name + "_sources",
        srcs = files.keys(),
        outs = [name + ".h", name + ".cc"],
        cmd = "$(execpath %s) $(RULEDIR) %s %s %s" % (
            tool,
            native.package_name(),
            name,
            arguments,
        ),
        tools = [tool],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
        deps = ["@com_google_absl//absl/strings"],
        **kwargs
    )
