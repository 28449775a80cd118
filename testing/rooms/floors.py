"""Which folder of the tree stands on which: the plan that check_rooms.py holds the tree against.

A room may know what it stands on, what that stands on, and so on down; nothing else. Ground first. A folder that is not
here is a room without a floor, which the check refuses: give it a line.
"""

STANDS_ON = {
    "kvm/base": [],
    "kvm/base/file": ["kvm/base"],
    # Arithmetic on views.
    "kvm/kernels": ["kvm/base"],
    "kvm/kernels/reference": ["kvm/kernels"],
    "kvm/kernels/cpu/vectors": ["kvm/kernels"],
    "kvm/kernels/cpu/pointwise": ["kvm/kernels/cpu/vectors"],
    "kvm/kernels/cpu/recurrence": ["kvm/kernels/cpu/vectors"],
    "kvm/kernels/cpu": ["kvm/kernels/cpu/pointwise", "kvm/kernels/cpu/recurrence"],
    "kvm/kernels/cuda": ["kvm/kernels"],
    # What a sequence remembers.
    "kvm/state": ["kvm/kernels"],
    "kvm/state/snapshot": ["kvm/state", "kvm/base/file"],
    "kvm/state/store": ["kvm/state/snapshot"],
    # The wiring.
    "kvm/model/stack": ["kvm/state"],
    "kvm/model/weights": ["kvm/model/stack", "kvm/kernels/cpu"],
    "kvm/model/engine": ["kvm/model/stack"],
    "kvm/model/mixers": ["kvm/model/weights", "kvm/model/engine"],
    "kvm/model/cpu": ["kvm/model/mixers"],
    "kvm/model": ["kvm/model/cpu", "kvm/state/snapshot"],
    # Files and formats. The model does not know them.
    "kvm/io/json": ["kvm/base/file"],
    "kvm/io/tokenizer/patterns": ["kvm/base/file"],
    "kvm/io/tokenizer/bytes": ["kvm/io/tokenizer/patterns"],
    "kvm/io/tokenizer": ["kvm/io/tokenizer/bytes", "kvm/io/json"],
    "kvm/io/tensors": ["kvm/model/weights", "kvm/io/json"],
    "kvm/io/torch": ["kvm/io/tensors"],
    "kvm/io/gguf": ["kvm/io/tensors"],
    "kvm/io/huggingface": ["kvm/io/tensors"],
    "kvm/io": ["kvm/io/gguf", "kvm/io/huggingface", "kvm/io/tokenizer", "kvm/io/torch"],
    # What is done with models.
    "kvm/bench": ["kvm/model", "kvm/io"],
    # The program.
    "tools/cli": ["kvm/io"],
    "tools/flags": ["tools/cli", "kvm/model", "kvm/state/store"],
    "tools/report": ["tools/cli", "kvm/bench"],
    "tools/session": ["tools/flags", "tools/report"],
    "tools/demo": ["tools/flags", "tools/report"],
    "tools": ["tools/demo", "tools/session"],
    "tools/embed": [],
}

# Tests, benchmarks and other targets that are testonly may know these, too.
FOR_TESTS = ["kvm/kernels/reference", "testing"]

# What belongs in programs and tests, not in libraries.
FOR_PROGRAMS = ["@com_github_google_glog"]

# What targets do without that others take them for: target, and the repositories it must not link.
LIGHT = {
    "//kvm/io:model_file": ["@com_github_pcre2"],
    "//kvm/model:language_model": ["@com_github_google_glog"],
    "//kvm/model/engine:state_size": ["@com_github_google_glog", "@com_google_highway"],
}

# What public headers include and their users never name: members of classes, whose targets stay ours.
PARTS = [
    "//kvm/kernels:scratch",
    "//kvm/state:aligned_vector",
    "//kvm/state:copy_on_write",
    "//kvm/state:growing_buffer",
]

# A source of another workspace that includes all public headers, so that their warnings are seen.
PUBLIC_HEADERS = "testing/consumer/public_headers.cc"

# Files that a folder may hold, its own alone.
MOST_FILES = 42
