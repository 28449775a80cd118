"""What the comparisons share: our side of them, and the table."""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

RATES = re.compile(r"prompt: ([\d,]+) tokens, ([\d.,]+) tokens/s;.* generated: [\d,]+ tokens, ([\d.,]+) tokens/s")


def parser(description, **defaults):
    """Flags of all comparisons; the defaults are rounds, tokens and threads."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--kvm", default="bazel-bin/tools/kvm", help="the kvm binary [%(default)s]")
    flags.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "kvm_peers"),
                       help="folder for models, which later runs use again [%(default)s]")
    flags.add_argument("--rounds", type=int, default=defaults["rounds"],
                       help="how often everything is measured, in turns [%(default)s]")
    flags.add_argument("--tokens", type=int, default=defaults["tokens"], help="tokens to decode [%(default)s]")
    flags.add_argument("--threads", type=int, nargs="+", default=defaults["threads"],
                       help="numbers of threads [%(default)s]")
    return flags


def run_kvm(kvm, *arguments):
    """Runs a command that must succeed; returns what it wrote to standard error."""
    done = subprocess.run([kvm, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kvm {arguments[0]}: {done.stderr.strip()}")
    return done.stderr


def make_model(args, name, pattern, *convert):
    """A stack of 12 layers with random weights in the work folder, converted to `name`."""
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    base, model = work / f"random_{pattern}", work / name
    if not base.exists():
        run_kvm(args.kvm, "build", f"--pattern={pattern}", "--block-output-gain=0.5", f"--out={base}")
    if not model.exists():
        run_kvm(args.kvm, "convert", *convert, base, model)
    return model


def prompt_ids(count):
    """Ids of two digits, so that even long prompts fit on a command line."""
    return [10 + i * i % 89 for i in range(count)]


def time_kvm(args, model, threads, context, *options):
    """Seconds for a prompt of context tokens, and milliseconds per token decoded after it."""
    log = run_kvm(args.kvm, "generate", f"--model={model}", f"--threads={threads}", *options, "--temperature=0", f"--max-tokens={args.tokens}",
                  "--prompt-ids=" + ",".join(map(str, prompt_ids(context))))
    prompt, prompt_rate, rate = (float(x.replace(",", "")) for x in RATES.search(log).groups())
    return prompt / prompt_rate, 1e3 / rate


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def number(x):
    """Three or four digits."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 100 else f"{x:.2f}"


class Table:
    """Medians of what was measured: one row per case, one column per contestant."""

    def __init__(self, *columns):
        self.columns = columns
        self.cases = {}

    def add(self, case, column, value):
        self.cases.setdefault(case, {}).setdefault(column, []).append(value)

    def print(self, title, unit, times=True):
        """The first column is ours; ratios say how many times better it is."""
        print(f"\n{title} ({unit}; in brackets: ours is that many times faster)\n")
        print(f"{'':34}" + "".join(f"{column:>22}" for column in self.columns))
        for case, values in self.cases.items():
            line = f"{case:34}"
            ours = statistics.median(values[self.columns[0]])
            for column in self.columns:
                if column not in values:
                    line += f"{'-':>22}"
                    continue
                median = statistics.median(values[column])
                ratio = median / ours if times else ours / median
                line += f"{number(median):>22}" if column == self.columns[0] else f"{number(median):>14} ({ratio:5.2f})"
            print(line, flush=True)
