"""kvm's headers give no warnings, whatever a project that includes them asks for."""

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]
