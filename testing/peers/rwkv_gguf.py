"""An official RWKV-7 checkpoint as a GGUF file that llama.cpp reads.

Only what a run on token ids needs: there is no tokenizer in the file. Matrices
get the type that is asked for; vectors, the mixes of token shift and the decay's
low-rank matrices are float32, as in files that llama.cpp's own converter makes.
"""

import gguf
import torch

GLOBAL = {
    "emb.weight": "token_embd.weight", "blocks.0.ln0.weight": "token_embd_norm.weight",
    "blocks.0.ln0.bias": "token_embd_norm.bias", "ln_out.weight": "output_norm.weight",
    "ln_out.bias": "output_norm.bias", "head.weight": "output.weight",
}
IN_BLOCK = {
    "ln1.weight": "attn_norm.weight", "ln1.bias": "attn_norm.bias", "ln2.weight": "attn_norm_2.weight",
    "ln2.bias": "attn_norm_2.bias", "att.ln_x.weight": "time_mix_ln.weight", "att.ln_x.bias": "time_mix_ln.bias",
    "ffn.x_k": "channel_mix_lerp_k.weight", "ffn.key.weight": "channel_mix_key.weight",
    "ffn.value.weight": "channel_mix_value.weight",
    **{f"att.{z}.weight": f"time_mix_{z}.weight" for z in ("receptance", "key", "value", "output")},
    **{f"att.{z}": f"time_mix_{z}.weight" for z in ("k_k", "k_a", "r_k")},
    **{f"att.{z}{i}": f"time_mix_{z}{i}.weight" for z in "wavg" for i in range(3)},
}
FLOAT32 = ("time_mix_w1", "time_mix_w2", "time_mix_lerp_fused", "channel_mix_lerp_k")
FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32, "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


def tensors_of(weights, layers):
    """Yields names and float32 arrays as llama.cpp wants them."""
    for source, name in GLOBAL.items():
        yield name, weights[source]
    for i in range(layers):
        block = {key.removeprefix(f"blocks.{i}."): z for key, z in weights.items() if key.startswith(f"blocks.{i}.")}
        if i == 0:  # Not used there, but read; the ranks must be those of a.
            block.update({f"att.v{j}": block[f"att.a{j}"] for j in range(3)})
        mixes = torch.stack([block[f"att.x_{z}"].flatten() for z in "rwkvag"])
        yield f"blk.{i}.time_mix_lerp_fused.weight", mixes[:, None, None]
        for source, name in IN_BLOCK.items():
            if source not in block:
                continue
            tensor = block[source].squeeze()
            if source[-2:-1] in "wavg" and source[-1] in "12":  # low rank, stored [in, out]
                tensor = tensor.t()
            yield f"blk.{i}.{name}", tensor.flatten() if source == "att.r_k" else tensor


def write(checkpoint, path, kind):
    """checkpoint is a .pth; kind is F32, BF16 or Q8_0."""
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)
    layers = 1 + max(int(key.split(".")[1]) for key in weights if key.startswith("blocks."))
    vocab, width = weights["emb.weight"].shape
    first = {z: weights[f"blocks.1.att.{z}1"].shape[1] for z in "wavg"}
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_context_length(1048576)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(weights["blocks.0.ffn.key.weight"].shape[0])
    writer.add_head_count(0)
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(weights["blocks.0.att.r_k"].shape[-1])
    writer.add_decay_lora_rank(first["w"])
    writer.add_iclr_lora_rank(first["a"])
    writer.add_value_residual_mix_lora_rank(first["v"])
    writer.add_gate_lora_rank(first["g"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(vocab)
    for name, tensor in tensors_of(weights, layers):
        data = tensor.float().contiguous().numpy()
        if data.ndim > 1 and not any(part in name for part in FLOAT32):
            quant = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(data, quant), raw_dtype=quant)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
