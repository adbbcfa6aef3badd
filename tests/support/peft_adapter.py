"""Writes LoRA adapters as PEFT does, with random weights, for the model deploy/models/tandem-tiny."""
import json
import pathlib
import random
import struct

from pair import MODEL


def matrix_shapes(model=MODEL):
    """{module path: (rows, columns)} of the model's matrices."""
    with open(model / "model.safetensors", "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return {name.removesuffix(".weight"): tensor["shape"] for name, tensor in header.items()
            if name != "__metadata__" and len(tensor["shape"]) == 2}


def write_safetensors(path, tensors):
    """tensors: {name: (shape, floats)}."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_adapter(folder, seed, rank=4, modules=("q_proj", "v_proj", "down_proj"), strength=0.15, changes=None, **config):
    """Returns the folder. Other config keys replace PEFT's; strength: how far outputs move.

    changes: {module: mistakes}, name: another one for its tensors, rows: what B has more than it should."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)
    tensors = {}
    for module, (rows, columns) in sorted(matrix_shapes().items()):
        if module.rsplit(".", 1)[-1] not in modules:
            continue
        mistakes = (changes or {}).get(module, {})
        name = f"base_model.model.{mistakes.get('name', module)}"
        rows += mistakes.get("rows", 0)
        tensors[f"{name}.lora_A.weight"] = ([rank, columns], [dice.gauss(0, columns ** -0.5)
                                                              for _ in range(rank * columns)])
        tensors[f"{name}.lora_B.weight"] = ([rows, rank], [dice.gauss(0, strength) for _ in range(rows * rank)])
    # A reader never sees one file of this adapter and one of another.
    write_safetensors(folder / "new", tensors)
    (folder / "new").replace(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0,
        "bias": "none", "target_modules": list(modules), "base_model_name_or_path": "tandem-tiny", **config}))
    return folder
