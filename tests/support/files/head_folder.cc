#include "tests/support/files/head_folder.h"

namespace tandem {
namespace {

constexpr int64_t kHeads = 2, kKvHeads = 1, kHeadDim = 32, kInner = 48;

// Every third token from the second on, then the first again: what is added to each index.
FileTensor Offsets(int64_t num_ids, int64_t vocab_size) {
  FileTensor d2t = {.name = "d2t", .shape = {num_ids}, .dtype = "I64"};
  for (int64_t i = 0; i < num_ids; ++i) {
    const int64_t offset = (1 + 3 * i) % vocab_size - i;
    d2t.bytes.append(reinterpret_cast<const char*>(&offset), sizeof(offset));
  }
  return d2t;
}

}  // namespace

std::string HeadConfigText(const HeadShape& shape) {
  std::string text = R"({"architectures": [")" +
                     std::string(shape.is_eagle3 ? "LlamaForCausalLMEagle3" : "LlamaForCausalLM") +
                     R"("], "model_type": "llama", "num_hidden_layers": 1)";
  const auto add = [&](const char* key, int64_t value) {
    text += ", \"" + std::string(key) + "\": " + std::to_string(value);
  };
  add("hidden_size", shape.hidden_size);
  add("vocab_size", shape.vocab_size);
  add("intermediate_size", kInner);
  add("num_attention_heads", kHeads);
  add("num_key_value_heads", kKvHeads);
  add("head_dim", kHeadDim);
  add("max_position_embeddings", 512);
  if (shape.is_eagle3) {
    add("draft_vocab_size", shape.draft_vocab_size);
    text += R"(, "eagle_aux_hidden_state_layer_ids": [)";
    for (size_t i = 0; i < shape.state_layers.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(shape.state_layers[i]);
    }
    text += "]";
  }
  return text + "}";
}

std::vector<FileTensor> HeadTensors(const HeadShape& shape, uint64_t seed) {
  const int64_t hidden = shape.hidden_size;
  const auto num_states = shape.is_eagle3 ? static_cast<int64_t>(shape.state_layers.size()) : 2;
  const int64_t width = shape.is_eagle3 ? 2 * hidden : hidden;  // of what attention reads
  const std::string layer = shape.is_eagle3 ? "midlayer." : "layers.0.";
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> sizes) {
    tensors.push_back(RandomTensor(name, std::move(sizes), seed + tensors.size()));
  };
  add("fc.weight", {hidden, num_states * hidden});
  add(layer + "self_attn.q_proj.weight", {kHeads * kHeadDim, width});
  add(layer + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, width});
  add(layer + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, width});
  add(layer + "self_attn.o_proj.weight", {hidden, kHeads * kHeadDim});
  add(layer + "mlp.gate_proj.weight", {kInner, hidden});
  add(layer + "mlp.up_proj.weight", {kInner, hidden});
  add(layer + "mlp.down_proj.weight", {hidden, kInner});
  add(layer + "post_attention_layernorm.weight", {hidden});
  if (shape.has_fc_bias) add("fc.bias", {hidden});
  if (shape.has_own_tables) add("embed_tokens.weight", {shape.vocab_size, hidden});
  if (!shape.is_eagle3) {
    if (shape.has_own_tables) add("lm_head.weight", {shape.vocab_size, hidden});
    return tensors;
  }
  add(layer + "input_layernorm.weight", {hidden});
  add(layer + "hidden_norm.weight", {hidden});
  add("norm.weight", {hidden});
  add("lm_head.weight", {shape.draft_vocab_size, hidden});
  if (shape.draft_vocab_size < shape.vocab_size) {
    tensors.push_back(Offsets(shape.draft_vocab_size, shape.vocab_size));
  }
  return tensors;
}

void WriteHead(const TempFolder& folder, const std::string& name, const HeadShape& shape,
               uint64_t seed) {
  folder.Write(name + "/config.json", HeadConfigText(shape));
  folder.Write(name + "/model.safetensors", SafetensorsBytes(HeadTensors(shape, seed)));
}

std::string MedusaConfigText(const MedusaShape& shape) {
  const std::string prefix = shape.is_vllms ? "" : "medusa_";
  return "{\"" + prefix + "num_heads\": " + std::to_string(shape.num_heads) + ", \"" +
         (shape.is_vllms ? "num_hidden_layers" : "medusa_num_layers") +
         "\": " + std::to_string(shape.num_layers) +
         ", \"vocab_size\": " + std::to_string(shape.vocab_size) +
         ", \"original_lm_head\": " + (shape.has_target_tables ? "true}" : "false}");
}

std::vector<FileTensor> MedusaTensors(const MedusaShape& shape, uint64_t seed) {
  const int64_t hidden = shape.hidden_size;
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> sizes) {
    const float scale = shape.has_target_tables ? 0 : 0.2f;
    tensors.push_back(RandomTensor(name, std::move(sizes), seed + tensors.size(), scale));
  };
  for (int64_t i = 0; i < shape.num_heads; ++i) {
    const std::string head = std::to_string(i);
    for (int64_t l = 0; l < shape.num_layers; ++l) {
      const std::string layer = std::to_string(l);
      const std::string name =
          shape.is_vllms ? "blocks." + head + ".layers." + layer : head + "." + layer + ".linear";
      add(name + ".weight", {hidden, hidden});
      if (!shape.is_vllms) add(name + ".bias", {hidden});
    }
    if (shape.has_target_tables) continue;
    add((shape.is_vllms ? "lm_heads." + head : head + "." + std::to_string(shape.num_layers)) +
            ".weight",
        {shape.vocab_size, hidden});
  }
  return tensors;
}

void WriteMedusa(const TempFolder& folder, const std::string& name, const MedusaShape& shape,
                 uint64_t seed) {
  folder.Write(name + "/config.json", MedusaConfigText(shape));
  folder.Write(name + "/model.safetensors", SafetensorsBytes(MedusaTensors(shape, seed)));
}

void WriteMtp(const TempFolder& folder, const std::string& name, const MtpShape& shape,
              uint64_t seed) {
  const bool is_apart = shape.gated_head_dim > 0;
  const std::string layer =
      is_apart ? "mtp.layers.0." : "model.layers." + std::to_string(shape.num_layers) + ".";
  const std::string around = is_apart ? "mtp." : layer;
  const int64_t hidden = shape.hidden_size, inner = shape.inner_size;
  std::vector<FileTensor> tensors;
  const auto add_named = [&](const std::string& tensor, std::vector<int64_t> sizes) {
    tensors.push_back(RandomTensor(tensor + ".weight", std::move(sizes), seed + tensors.size()));
  };
  const auto add = [&](const std::string& tensor, std::vector<int64_t> sizes) {
    add_named(layer + tensor, std::move(sizes));
  };
  add_named(around + (is_apart ? "pre_fc_norm_embedding" : "enorm"), {hidden});
  add_named(around + (is_apart ? "pre_fc_norm_hidden" : "hnorm"), {hidden});
  add_named(around + (is_apart ? "norm" : "shared_head.norm"), {hidden});
  add("input_layernorm", {hidden});
  add("post_attention_layernorm", {hidden});
  add_named(around + (is_apart ? "fc" : "eh_proj"), {hidden, 2 * hidden});
  if (is_apart) {
    add("self_attn.q_norm", {shape.gated_head_dim});
    add("self_attn.k_norm", {shape.gated_head_dim});
  }
  add("self_attn.q_proj", {is_apart ? 2 * shape.q_size : shape.q_size, hidden});
  add("self_attn.k_proj", {shape.kv_size, hidden});
  add("self_attn.v_proj", {shape.kv_size, hidden});
  add("self_attn.o_proj", {hidden, shape.q_size});
  add("mlp.gate_proj", {inner, hidden});
  add("mlp.up_proj", {inner, hidden});
  add("mlp.down_proj", {hidden, inner});
  folder.Write(name + "/model.safetensors", SafetensorsBytes(tensors));
}

}  // namespace tandem
