#!/usr/bin/env python3
"""Makes the files beside it with the Hugging Face tokenizers library (0.23.3).

  make_tokenizers.py TEXT

TEXT is a file of English text to train on. Written are tokenizers, each with texts and the ids that the library gives
them (*_cases.jsonl); patterns and how the library splits texts by them (splits.jsonl); and a small vocabulary of the
World kind with ids found by trying all tokens at every place.
"""

import collections
import json
import pathlib
import re
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
OMNI = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)

TEXTS = [
    "",
    " ",
    "a",
    "In the beginning God created the heaven and the earth.",
    "  And the LORD said unto him,\n\n\tI'll go; he's, they'RE, WE'VE, i'D \u2018tis\u2019 isn't \u017ft'\u017f.",
    "1 12 123 1234 12345678 3.14 \u00b2\u00bd \u0663\u0664\u0665\u0666 x1y22z333",
    "Line one\r\nline two\r\n\r\n   line three   \n   ",
    "tabs\t\tand\u00a0no-break\u2003em\u3000ideographic\u180e\u200b\u0085\u2028spaces",
    "caf\u00e9 cafe\u0301 \u00c5 A\u030a \u212b \u1e69 s\u0323\u0307 s\u0307\u0323 \u0301 \uac00 \u1100\u1161\u11a8 \u0958",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u30a2\u30a4\u3002 \uc548\ub155 \u041f\u0440\u0438\u0432\u0435\u0442 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd",
    "\U0001f469\u200d\U0001f680\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea!!! ... --- ?!\n///\n#include <x>",
    "<|begin|>system<|end|>\n<|begin|>user <|end|>  <|begin|>",
    "left  <left>  right  <right>  both  <both>  both",
    "<left><right><both> <both> <both><left>",
    "wordword word -word word_ \u00e9word word\u00e9 (word) word1 word",
    "cafe\u0301!caf\u00e9! norm<norm>norm <NORM>",
    "unto the Lord God; UNTO  THEE\u2026 thou shalt notnotnot",
    "a" * 70 + " " * 40 + "\n" * 9 + "7" * 20,
    "camelCaseWord HTTPServer \u01c5\u01c6 \u02b0x \u05d0\u05d1 \u0301\u0302a /path//to/\n/",
    "x\u0000y\u001f\u007f\ufeff\ufffd\ue000\U000f0000\u0378",
    "  \n  \n\n a  b   c    \r d\n\n\n",
    "$1,000.50 50% e-mail@example.org 'quoted' \"double\" ''s 's",
]


def trained(pre_tokenizer, normalizer, text, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(text.splitlines(True), trainer)
    return tokenizer


def byte_level(add_prefix_space, use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def token(content, special=True, normalized=False, **options):
    return AddedToken(content, normalized=normalized, special=special, **options)


def make_gpt2(text):
    tokenizer = trained(byte_level(True, True), None, text, 400)
    tokenizer.add_special_tokens([token("<|endoftext|>"), token("<|begin|>"), token("<|end|>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def make_llama(text):
    steps = [split(Regex(LLAMA)), byte_level(False, False)]
    tokenizer = trained(pre_tokenizers.Sequence(steps), None, text, 400)
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    for word in ["Ġbeginning", "notnotnot", "Ã©word", "123"]:  # no merges lead there
        state["model"]["vocab"].setdefault(word, len(state["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(
        [token("<|begin_of_text|>"), token("<|end_of_text|>"), token("<|begin|>"), token("<|end|>")]
    )
    start = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", start)],
            ),
        ]
    )
    return tokenizer


def make_qwen(text):
    steps = [split(Regex(QWEN)), byte_level(False, False)]
    tokenizer = trained(pre_tokenizers.Sequence(steps), normalizers.NFC(), text, 420)
    tokenizer.add_special_tokens([token("<|endoftext|>"), token("<|begin|>"), token("<|end|>")])
    tokenizer.add_tokens(
        [token("cafe\u0301!", special=False, normalized=True), token("<norm>", special=False, normalized=True)]
    )
    return tokenizer


def make_steps(text):
    steps = [
        split(" ", "merged_with_next"),
        pre_tokenizers.Digits(individual_digits=True),
        split(Regex(r"[\p{Han}\u3040-\u30ff]+"), "contiguous"),
        split(Regex(r"[.!?]+"), "merged_with_previous"),
        byte_level(False, True),
    ]
    tokenizer = trained(pre_tokenizers.Sequence(steps), normalizers.Sequence([normalizers.NFC()]), text, 400)
    tokenizer.add_special_tokens(
        [
            token("<left>", lstrip=True),
            token("<right>", rstrip=True),
            token("<both>", lstrip=True, rstrip=True),
            token("word", single_word=True),
            token("<norm>", normalized=True, lstrip=True, single_word=True),
        ]
    )
    return tokenizer


def write_tokenizer(name, tokenizer):
    state = json.loads(tokenizer.to_str())
    (HERE / (name + ".json")).write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")
    with open(HERE / (name + "_cases.jsonl"), "w") as file:
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            whole = tokenizer.encode(text).ids
            file.write(json.dumps({"text": text, "ids": ids, "with_special": whole}) + "\n")


PATTERNS = [LLAMA, QWEN, OMNI, CL100K] + [
    r"\s",
    r"\S+",
    r"\d",
    r"\D+",
    r"\w+",
    r"\W+",
    r"\h+",
    r"[\w']+",
    r"[^\w]",
    r"[\S]",
    r"[^\S\n]+",
    r".+",
    r"^",
    r"$",
    r"\s+$",
    r"^.",
    r"\A.",
    r".\z",
    r".\Z",
    r"\p{N}{1,3}+",
    r"\d{,2}x",
    r"\d{2,}?",
    r"(?:\d{2})+",
    r"a{2}",
    r"(?i)and|THE",
    r"(?i:lord)|god(?-i:X)?",
    r"(?<=a)n|(?<!t)h",
    r"(?>a+)b?|(?:a|)",
    r"\p{Han}+|\p{^L}",
    r"\P{L}+",
    r"[\p{L}[\d.]]+",
    r"[^\p{L}[\d.]]+",
    r"[a-cx-z\-\]\[]+",
    r"[-a]",
    r"[a-]",
    r"\x41|\x{e9}|\u00e9|\t|\v|\f|\e|\a",
    r"x{|\{|}|]",
    r"(a)(?=n)",
    r"[\b]|[\x{4e00}-\x{9fff}]",
    r"\p{P}|\p{S}+|\p{Z}",
    r"\p{Cc}|\p{Cf}|\p{Co}|\p{Cn}",
    r" ?\p{Lu}\p{Ll}*+",
    r"'(?=s)|,",
    r"[,.]?+",
]
STRINGS = [" ", ".", "and", "\n", "(", "\u00e9"]
BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]


def write_splits():
    names = {name: "".join(part.title() for part in name.split("_")) for name in BEHAVIORS}
    with open(HERE / "splits.jsonl", "w") as file:
        count = 0
        for pattern in [("Regex", p) for p in PATTERNS] + [("String", s) for s in STRINGS]:
            made = Regex(pattern[1]) if pattern[0] == "Regex" else pattern[1]
            for number, behavior in enumerate(BEHAVIORS):
                for invert in [False, True]:
                    count += 1
                    text = TEXTS[3 + count % (len(TEXTS) - 3)]
                    words = [text[a:b] for _, (a, b) in split(made, behavior, invert).pre_tokenize_str(text)]
                    step = {"type": "Split", "pattern": dict([pattern]), "behavior": names[behavior], "invert": invert}
                    file.write(json.dumps({"step": step, "text": text, "words": words}) + "\n")


def write_world(text):
    words = collections.Counter(re.findall(r" ?\w+", text))
    chosen = [word for word, _ in words.most_common(240)]
    tokens = {bytes([value]) for value in range(256)}
    literals = [repr(chr(value)) if value < 0x80 else repr(bytes([value])) for value in range(256)]
    extra = chosen + ["  ", "    ", "\n\n", "\r\n", "'s", "\"'", "\\n", "caf\u00e9", "\u4f60\u597d", "\u4e16", "\U0001f469", "\u2028", "\u00ad"]
    parts = [b"\xe4\xb8", b"\xf0\x9f", b"\xe3\x81", b"'\"\xff\\"]
    extra = sorted([e.encode() for e in extra] + parts, key=lambda e: (len(e), e))
    for data in extra:
        if data in tokens:
            continue
        tokens.add(data)
        try:
            literals.append(repr(data.decode()))
        except UnicodeDecodeError:
            literals.append(repr(data))
    by_bytes = {}
    with open(HERE / "world_vocabulary.txt", "w", newline="\n") as file:
        for number, literal in enumerate(literals, 1):
            value = eval(literal)  # of our own making
            data = value if isinstance(value, bytes) else value.encode()
            by_bytes[data] = number
            file.write("%d %s %d\n" % (number, literal, len(data)))
    longest = max(map(len, by_bytes))
    with open(HERE / "world_cases.jsonl", "w") as file:
        for case in TEXTS:
            data = case.encode()
            ids = []
            while data:
                size = next(size for size in range(longest, 0, -1) if len(data) >= size and data[:size] in by_bytes)
                ids.append(by_bytes[data[:size]])
                data = data[size:]
            file.write(json.dumps({"text": case, "ids": ids, "with_special": ids}) + "\n")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    text = pathlib.Path(arguments[0]).read_text()
    for name, make in [("gpt2", make_gpt2), ("llama", make_llama), ("qwen", make_qwen), ("steps", make_steps)]:
        write_tokenizer(name, make(text))
    write_splits()
    write_world(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
