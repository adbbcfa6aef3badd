// Each tiny model written as the GGUF file that llama.cpp's converter would make of it: names,
// order of rows, stacked experts, norms plus one, keys. Its logits must be those of the folder. And
// files that the converter itself made, where TANDEM_GGUF_TWINS names a folder with them: each is
// named as the recorded folder that it was made of.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "engine_core/weights/safetensors.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

struct Renaming {
  std::string from, to;
};

// Replaced one after the other.
const std::vector<Renaming> kRenamings = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.", "blk."},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"input_layernorm", "attn_norm"},
    {"block_sparse_moe.gate.", "ffn_gate_inp."},
    {"block_sparse_moe.", "mlp."},
    {".w1.", ".gate_proj."},
    {".w2.", ".down_proj."},
    {".w3.", ".up_proj."},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate.", "ffn_gate_inp."},
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"transformer.h.", "blk."},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

struct Twin {
  std::string folder;
  std::string architecture;
  std::vector<Renaming> norms = {{"post_attention_layernorm", "ffn_norm"}};
  bool has_paired_rows = false;
  bool adds_one_to_norms = false;
  bool is_transposed = false;
  // One is added to norms and taken off again, a decay is an exponential, and a tenth of YaRN's
  // factor is stored: all of these round.
  double tolerance = 0;
};

const std::vector<Renaming> kNormsAfter = {{"post_attention_layernorm", "post_attention_norm"},
                                           {"pre_feedforward_layernorm", "ffn_norm"},
                                           {"post_feedforward_layernorm", "post_ffw_norm"}};

const std::vector<Renaming> kLatents = {{"post_attention_layernorm", "ffn_norm"},
                                        {"kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                                        {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
                                        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                                        {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                                        {"self_attn.q_a_proj", "attn_q_a"},
                                        {"self_attn.q_b_proj", "attn_q_b"},
                                        {"self_attn.attn_kv_a_mqa", "attn_kv_a_mqa"},
                                        {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
                                        {"self_attn.indexer.wk", "indexer.attn_k"},
                                        {"self_attn.indexer.weights_proj", "indexer.proj"},
                                        {"self_attn.indexer.k_norm", "indexer.k_norm"}};

const std::vector<Twin> kTwins = {
    {.folder = "deepseek_v2", .architecture = "deepseek2", .norms = kLatents, .tolerance = 1e-4},
    {.folder = "deepseek_v32", .architecture = "deepseek32", .norms = kLatents, .tolerance = 1e-4},
    {.folder = "gemma", .architecture = "gemma", .adds_one_to_norms = true},
    {.folder = "gemma2", .architecture = "gemma2", .norms = kNormsAfter, .adds_one_to_norms = true},
    {.folder = "gemma3_text",
     .architecture = "gemma3",
     .norms = kNormsAfter,
     .adds_one_to_norms = true},
    {.folder = "gpt2", .architecture = "gpt2", .is_transposed = true},
    {.folder = "lfm2",
     .architecture = "lfm2",
     .norms = {{"model.embedding_norm", "token_embd_norm"},
               {"operator_norm", "attn_norm"},
               {"self_attn.q_layernorm", "attn_q_norm"},
               {"self_attn.k_layernorm", "attn_k_norm"},
               {"self_attn.out_proj", "attn_output"},
               {".conv.", ".shortconv."},
               {"feed_forward.w1", "ffn_gate"},
               {"feed_forward.w3", "ffn_up"},
               {"feed_forward.w2", "ffn_down"}}},
    {.folder = "llama_bias_headdim", .architecture = "llama", .has_paired_rows = true},
    {.folder = "llama_fp16", .architecture = "llama", .has_paired_rows = true},
    {.folder = "llama_rope_linear", .architecture = "llama", .has_paired_rows = true},
    {.folder = "llama_tied", .architecture = "llama", .has_paired_rows = true},
    {.folder = "mixtral", .architecture = "llama", .has_paired_rows = true},
    {.folder = "olmo2", .architecture = "olmo2", .norms = kNormsAfter},
    {.folder = "phi3_partial_rotary", .architecture = "phi3"},
    {.folder = "qwen2", .architecture = "qwen2"},
    {.folder = "qwen3", .architecture = "qwen3"},
    {.folder = "qwen3_5_text",
     .architecture = "qwen35",
     .norms = {{"post_attention_layernorm", "post_attention_norm"},
               {"linear_attn.A_log", "ssm_a"},
               {"linear_attn.dt_bias", "ssm_dt.bias"},
               {"linear_attn.in_proj_qkv", "attn_qkv"},
               {"linear_attn.in_proj_z", "attn_gate"},
               {"linear_attn.in_proj_a", "ssm_alpha"},
               {"linear_attn.in_proj_b", "ssm_beta"},
               {"linear_attn.conv1d", "ssm_conv1d"},
               {"linear_attn.norm", "ssm_norm"},
               {"linear_attn.out_proj", "ssm_out"}},
     .adds_one_to_norms = true},
};

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

// What GGUF has no keys for, as its architectures have it.
json WithoutOddities(json config) {
  if (config.contains("query_pre_attn_scalar")) {
    config["query_pre_attn_scalar"] = config["head_dim"];
  }
  return config;
}

void WriteLatentKeys(const json& config, const std::string& prefix, GgufBytes* out) {
  const uint32_t rank = config["kv_lora_rank"], pe = config["qk_rope_head_dim"];
  const std::string heads = prefix + "attention.";
  out->Integer(heads + "head_count", config["num_attention_heads"])
      .Integer(heads + "head_count_kv", 1)
      .Integer(heads + "q_lora_rank", config["q_lora_rank"])
      .Integer(heads + "kv_lora_rank", rank)
      .Integer(heads + "key_length", rank + pe)
      .Integer(heads + "value_length", rank)
      .Integer(heads + "key_length_mla", config["qk_nope_head_dim"].get<uint32_t>() + pe)
      .Integer(heads + "value_length_mla", config["v_head_dim"])
      .Integer(prefix + "rope.dimension_count", pe)
      .Integer(prefix + "leading_dense_block_count", config["first_k_dense_replace"])
      .Integer(prefix + "expert_count", config["n_routed_experts"])
      .Integer(prefix + "expert_used_count", config["num_experts_per_tok"])
      .Integer(prefix + "expert_shared_count", config["n_shared_experts"])
      .Integer(prefix + "expert_feed_forward_length", config["moe_intermediate_size"])
      .Integer(prefix + "expert_group_count", config["n_group"])
      .Integer(prefix + "expert_group_used_count", config["topk_group"])
      .Float(prefix + "expert_weights_scale", config["routed_scaling_factor"])
      .Bool(prefix + "expert_weights_norm", config["norm_topk_prob"]);
  if (config.contains("index_topk")) {
    out->Integer(heads + "indexer.head_count", config["index_n_heads"])
        .Integer(heads + "indexer.key_length", config["index_head_dim"])
        .Integer(heads + "indexer.top_k", config["index_topk"]);
  }
  const json& scaling = config["rope_scaling"];
  out->String(prefix + "rope.scaling.type", "yarn")
      .Float(prefix + "rope.scaling.factor", scaling["factor"])
      .Integer(prefix + "rope.scaling.original_context_length",
               scaling["original_max_position_embeddings"])
      .Float(prefix + "rope.scaling.yarn_beta_fast", scaling["beta_fast"])
      .Float(prefix + "rope.scaling.yarn_beta_slow", scaling["beta_slow"])
      .Float(prefix + "rope.scaling.yarn_log_multiplier",
             0.1F * scaling["mscale_all_dim"].get<float>());
}

// Keys of the layers that keep states.
void WriteStateKeys(const json& config, const std::string& architecture, GgufBytes* out) {
  const std::string prefix = architecture + ".";
  if (architecture == "lfm2") {
    out->Integers(prefix + "attention.head_count_kv", {0, config["num_key_value_heads"], 0})
        .Integer(prefix + "shortconv.l_cache", config["conv_L_cache"])
        .Float(prefix + "attention.layer_norm_rms_epsilon", config["norm_eps"])
        .Integer(prefix + "feed_forward_length", 96);  // 2 / 3 of block_ff_dim, rounded up
  } else if (architecture == "qwen35") {
    const uint32_t heads = config["linear_num_value_heads"];
    const json& rope = config["rope_parameters"];
    out->Integer(prefix + "ssm.conv_kernel", config["linear_conv_kernel_dim"])
        .Integer(prefix + "ssm.state_size", config["linear_key_head_dim"])
        .Integer(prefix + "ssm.group_count", config["linear_num_key_heads"])
        .Integer(prefix + "ssm.time_step_rank", heads)
        .Integer(prefix + "ssm.inner_size", heads * config["linear_value_head_dim"].get<uint32_t>())
        .Float(prefix + "rope.freq_base", rope["rope_theta"])
        .Integer(prefix + "rope.dimension_count",
                 static_cast<uint32_t>(config["head_dim"].get<float>() *
                                       rope["partial_rotary_factor"].get<float>()));
  }
}

void WriteKeys(const json& config, const std::string& architecture, GgufBytes* out) {
  const std::string prefix = architecture + ".";
  out->String("general.architecture", architecture);
  const auto find = [&](const char* name, const char* gpt2_name) -> const json* {
    for (const char* each : {name, gpt2_name}) {
      if (each != nullptr && config.contains(each) && !config[each].is_null()) return &config[each];
    }
    return nullptr;
  };
  const auto integer = [&](const std::string& key, const char* name,
                           const char* gpt2_name = nullptr) {
    if (const json* value = find(name, gpt2_name)) {
      out->Integer(prefix + key, value->get<uint32_t>());
    }
  };
  const auto number = [&](const std::string& key, const char* name) {
    if (const json* value = find(name, nullptr)) out->Float(prefix + key, value->get<float>());
  };
  integer("block_count", "num_hidden_layers", "n_layer");
  integer("context_length", "max_position_embeddings", "n_positions");
  integer("embedding_length", "hidden_size", "n_embd");
  integer("feed_forward_length", "intermediate_size");
  if (architecture == "gpt2") out->Integer("gpt2.feed_forward_length", 256);
  WriteStateKeys(config, architecture, out);
  number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  number("rope.freq_base", "rope_theta");
  if (architecture.starts_with("deepseek")) return WriteLatentKeys(config, prefix, out);
  integer("attention.head_count", "num_attention_heads", "n_head");
  if (architecture != "lfm2") integer("attention.head_count_kv", "num_key_value_heads");
  integer("attention.key_length", "head_dim");
  integer("attention.value_length", "head_dim");
  integer("attention.sliding_window", "sliding_window");
  integer("attention.sliding_window_pattern", "sliding_window_pattern");
  integer("expert_count", "num_local_experts");
  integer("expert_used_count", "num_experts_per_tok");
  number("attention.layer_norm_epsilon", "layer_norm_epsilon");
  number("attn_logit_softcapping", "attn_logit_softcapping");
  number("final_logit_softcapping", "final_logit_softcapping");
  number("rope.freq_base_swa", "rope_local_base_freq");
  if (config.contains("partial_rotary_factor")) {
    const float head_dim =
        config["hidden_size"].get<float>() / config["num_attention_heads"].get<float>();
    out->Integer(prefix + "rope.dimension_count",
                 static_cast<uint32_t>(head_dim * config["partial_rotary_factor"].get<float>()));
  }
  if (const json* scaling = find("rope_scaling", nullptr)) {
    out->String(prefix + "rope.scaling.type", "linear");
    out->Float(prefix + "rope.scaling.factor", (*scaling)["factor"].get<float>());
  }
}

struct Numbers {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  size_t row_bytes() const { return bytes.size() / static_cast<size_t>(shape[0]); }
};

std::vector<float> FloatsOf(const Numbers& numbers) {
  std::vector<float> floats;
  const size_t size = numbers.dtype == "F32" ? 4 : 2;
  for (size_t i = 0; i < numbers.bytes.size(); i += size) {
    float number = 0;
    uint16_t half = 0;
    std::memcpy(size == 4 ? static_cast<void*>(&number) : &half, numbers.bytes.data() + i, size);
    if (size == 2) number = numbers.dtype == "F16" ? HalfToFloat(half) : ToFloat(Bf16{half});
    floats.push_back(number);
  }
  return floats;
}

Numbers AsF32(const Numbers& numbers, float offset) {
  std::string bytes;
  for (const float number : FloatsOf(numbers)) bytes += RawBytes(number + offset);
  return {"F32", numbers.shape, bytes};
}

Numbers NegativeExp(const Numbers& numbers) {
  std::string bytes;
  for (const float number : FloatsOf(numbers)) bytes += RawBytes(-std::exp(number));
  return {"F32", numbers.shape, bytes};
}

// Rows of each head in the order 0, h/2, 1, h/2 + 1 ...
Numbers Paired(const Numbers& numbers, size_t head_dim) {
  Numbers paired = numbers;
  const size_t size = numbers.row_bytes();
  for (size_t row = 0; row < static_cast<size_t>(numbers.shape[0]); ++row) {
    const size_t r = row % head_dim, from = row - r + r / 2 + r % 2 * head_dim / 2;
    paired.bytes.replace(row * size, size, numbers.bytes.substr(from * size, size));
  }
  return paired;
}

Numbers Transposed(const Numbers& numbers) {
  const auto rows = static_cast<size_t>(numbers.shape[0]),
             columns = static_cast<size_t>(numbers.shape[1]);
  const size_t size = numbers.row_bytes() / columns;
  Numbers turned = {numbers.dtype, {numbers.shape[1], numbers.shape[0]}, ""};
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row) {
      turned.bytes += numbers.bytes.substr((row * columns + column) * size, size);
    }
  }
  return turned;
}

// Rows in another order.
Numbers Reordered(const Numbers& numbers, const std::vector<size_t>& order) {
  Numbers result = numbers;
  const size_t size = numbers.row_bytes();
  for (size_t row = 0; row < order.size(); ++row) {
    result.bytes.replace(row * size, size, numbers.bytes.substr(order[row] * size, size));
  }
  return result;
}

// The order of rows after the first `begin`, in heads of `dim`: the first value head of each key
// head, then the second ones.
std::vector<size_t> InTurns(size_t num_rows, size_t begin, size_t key_heads, size_t dim) {
  std::vector<size_t> order;
  for (size_t row = 0; row < begin; ++row) order.push_back(row);
  const size_t of_key = (num_rows - begin) / dim / key_heads;
  for (size_t v = 0; v < of_key; ++v) {
    for (size_t k = 0; k < key_heads; ++k) {
      for (size_t i = 0; i < dim; ++i) order.push_back(begin + (k * of_key + v) * dim + i);
    }
  }
  return order;
}

// Qwen3.5's value heads, which lie apart.
Numbers ValuesInTurns(const Numbers& numbers, const std::string& name, const json& config) {
  const size_t key_heads = config["linear_num_key_heads"], dim = config["linear_value_head_dim"];
  const size_t keys = 2 * key_heads * config["linear_key_head_dim"].get<size_t>();
  const auto rows = static_cast<size_t>(numbers.shape[0]);
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (is("attn_qkv") || is("ssm_conv1d")) {
    return Reordered(numbers, InTurns(rows, keys, key_heads, dim));
  }
  if (is("attn_gate")) return Reordered(numbers, InTurns(rows, 0, key_heads, dim));
  if (is("ssm_alpha") || is("ssm_beta") || is("ssm_a") || is("ssm_dt")) {
    return Reordered(numbers, InTurns(rows, 0, key_heads, 1));
  }
  if (!is("ssm_out")) return numbers;
  const Numbers turned = Transposed(numbers);
  const auto columns = static_cast<size_t>(turned.shape[0]);
  return Transposed(Reordered(turned, InTurns(columns, 0, key_heads, dim)));
}

// kv_b_proj as the keys of each head, transposed, and its values.
void SplitHeads(const Numbers& numbers, const std::string& layer, const json& config,
                std::map<std::string, Numbers>* out) {
  const int64_t heads = config["num_attention_heads"], nope = config["qk_nope_head_dim"],
                value = config["v_head_dim"], rank = numbers.shape[1];
  Numbers keys = {numbers.dtype, {heads, rank, nope}, ""},
          values = {numbers.dtype, {heads, value, rank}, ""};
  const size_t row = numbers.row_bytes();
  for (int64_t h = 0; h < heads; ++h) {
    const size_t first = static_cast<size_t>(h * (nope + value)) * row;
    const size_t split = static_cast<size_t>(nope) * row;
    keys.bytes +=
        Transposed({numbers.dtype, {nope, rank}, numbers.bytes.substr(first, split)}).bytes;
    values.bytes += numbers.bytes.substr(first + split, static_cast<size_t>(value) * row);
  }
  (*out)[layer + "attn_k_b.weight"] = keys;
  (*out)[layer + "attn_v_b.weight"] = values;
}

std::string NameOf(const Twin& twin, std::string name) {
  for (const auto* renamings : {&twin.norms, &kRenamings}) {
    for (const Renaming& renaming : *renamings) {
      const size_t place = name.find(renaming.from);
      if (place != std::string::npos) name.replace(place, renaming.from.size(), renaming.to);
    }
  }
  // "blk.0.mlp.experts.3.gate_proj.weight" is a part of "blk.0.ffn_gate_exps.weight".
  const size_t experts = name.find("mlp.experts.");
  if (experts == std::string::npos) return name;
  const size_t part = name.find('.', experts + 12) + 1;
  return name.substr(0, experts) + "ffn_" + name.substr(part, name.find("_proj") - part) +
         "_exps.weight";
}

// The folder's tensors as the converter writes them, by their names.
std::map<std::string, Numbers> Convert(const Twin& twin, const std::string& folder,
                                       const json& config, size_t head_dim) {
  const std::string file = ReadText(folder + "/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const json header = json::parse(file.substr(8, header_bytes));
  std::map<std::string, Numbers> converted;
  for (const auto& [hf_name, entry] : header.items()) {
    if (hf_name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    Numbers numbers = {entry["dtype"], entry["shape"].get<std::vector<int64_t>>(),
                       file.substr(8 + header_bytes + begin, end - begin)};
    const std::string name = NameOf(twin, hf_name);
    if (const size_t heads = name.find("self_attn.kv_b_proj"); heads != std::string::npos) {
      SplitHeads(numbers, name.substr(0, heads), config, &converted);
      continue;
    }
    if (numbers.shape.size() == 3 && name.find("conv") != std::string::npos) {
      numbers.shape.erase(numbers.shape.begin() + 1);
      numbers = AsF32(numbers, 0);
    }
    if (twin.architecture == "qwen35") numbers = ValuesInTurns(numbers, name, config);
    if (name.ends_with("ssm_a")) numbers = NegativeExp(numbers);
    const bool is_qk =
        name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos;
    if (twin.has_paired_rows && is_qk) numbers = Paired(numbers, head_dim);
    if (twin.is_transposed && numbers.shape.size() == 2 && name.starts_with("blk.")) {
      numbers = Transposed(numbers);
    }
    const bool is_norm =
        name.find("norm.weight") != std::string::npos && name.find("ssm_") == std::string::npos;
    if (numbers.shape.size() == 1) {
      numbers = AsF32(numbers, is_norm && twin.adds_one_to_norms ? 1 : 0);
    }
    if (!name.ends_with("_exps.weight")) {
      converted[name] = numbers;
      continue;
    }
    Numbers& stack = converted[name];
    if (stack.shape.empty()) stack = {numbers.dtype, {0, numbers.shape[0], numbers.shape[1]}, ""};
    ++stack.shape[0];
    stack.bytes += numbers.bytes;
  }
  return converted;
}

void WriteTensors(const std::map<std::string, Numbers>& tensors, GgufBytes* out) {
  for (const auto& [name, numbers] : tensors) {
    const uint32_t type = numbers.dtype == "F32" ? 0 : numbers.dtype == "F16" ? 1 : 30;
    out->Tensor(name, type, {numbers.shape.rbegin(), numbers.shape.rend()}, numbers.bytes);
  }
}

// The recorded folder of a model; empty: there is none.
std::string FolderOf(const std::string& name) {
  const auto goldens = WholeGoldens();
  for (const std::string& root :
       {std::string(TANDEM_GOLDEN_DIR) + "/models", goldens.value_or("") + "/models2",
        goldens.value_or("") + "/models"}) {
    if (HasGolden(root + "/" + name, "goldens.json")) return root + "/" + name;
  }
  return "";
}

TEST_CASE("GGUF twins: the same logits as from the folder") {
  for (const Twin& twin : kTwins) {
    CAPTURE(twin.folder);
    const std::string folder = FolderOf(twin.folder);
    if (folder.empty()) {
      WARN("skipped: " << twin.folder << " is in TANDEM_GOLDENS alone, which names no folder");
      continue;
    }
    const json config = WithoutOddities(json::parse(ReadText(folder + "/config.json")));
    const auto expected_config = ParseModelConfig(config.dump(), "");
    REQUIRE(expected_config.ok());
    GgufBytes bytes;
    WriteKeys(config, twin.architecture, &bytes);
    WriteTensors(Convert(twin, folder, config, static_cast<size_t>(expected_config->head_dim)),
                 &bytes);
    const TempFolder temp;
    temp.Write("twin.gguf", bytes.Build());
    const std::string path = temp.PathOf("twin.gguf");
    const auto twin_config = ReadModelConfig(path);
    CAPTURE(twin_config.status().message());
    REQUIRE(twin_config.ok());

    const auto ids = ReadGoldens(folder)["prompts"][0]["prompt_ids"].get<std::vector<int32_t>>();
    const auto backend = MakeTestBackend(false, DType::kF32, 1);
    const auto expected = AllLogits(expected_config, folder, 256, backend.get(), ids);
    const auto found = AllLogits(twin_config, path, 256, backend.get(), ids);
    REQUIRE(found.size() == expected.size());
    const double tolerance = twin.adds_one_to_norms ? 1e-3 : twin.tolerance;
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(MaxDifference(found[i], expected[i].data()) <= tolerance);
    }
  }
}

TEST_CASE("GGUF twins: files that llama.cpp's converter made") {
  const char* const converted = std::getenv("TANDEM_GGUF_TWINS");
  if (converted == nullptr) {
    WARN("skipped: TANDEM_GGUF_TWINS names no folder of converted files");
    return;
  }
  int num_compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(converted)) {
    const std::string folder = FolderOf(entry.path().stem());
    if (entry.path().extension() != ".gguf" || folder.empty()) continue;
    CAPTURE(entry.path().string());
    ++num_compared;
    const auto expected_config = ReadModelConfig(folder);
    const auto config = ReadModelConfig(entry.path());
    CAPTURE(config.status().message());
    REQUIRE(config.ok());
    const auto backend = MakeTestBackend(false, DType::kF32, 1);
    const json goldens = ReadGoldens(folder);
    for (const json& prompt : goldens["prompts"]) {
      const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
      const auto expected = AllLogits(expected_config, folder, 256, backend.get(), ids);
      const auto found = AllLogits(config, entry.path(), 256, backend.get(), ids);
      CHECK(MaxDifference(found.back(), expected.back().data()) <= 2e-3);
    }
  }
  CHECK(num_compared > 0);
}

}  // namespace
}  // namespace tandem
