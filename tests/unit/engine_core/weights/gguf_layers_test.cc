// GGUF files of architectures whose layers differ: the config that their keys and tensors stand
// for, and tensors that a converter has changed. Names and keys are llama.cpp's.

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Bools = std::vector<bool>;

constexpr uint32_t kF32 = 0;

// Of numbers 1, 2, 3 …
std::string Numbers(uint64_t count, float factor = 1) {
  std::string bytes;
  for (uint64_t i = 1; i <= count; ++i) bytes += RawBytes(factor * static_cast<float>(i));
  return bytes;
}

// A small file of one architecture. Sizes of tensors do not matter where only the config is read.
class Model {
 public:
  explicit Model(const std::string& architecture, uint32_t num_layers) : name_(architecture) {
    bytes_.String("general.architecture", architecture);
    Key("block_count", num_layers).Key("context_length", 64).Key("embedding_length", 8);
    Tensor("token_embd.weight", {8, 16});
  }

  Model& Key(const std::string& key, uint32_t value) {
    bytes_.Integer(name_ + "." + key, value);
    return *this;
  }
  Model& Keys(const std::string& key, const std::vector<int32_t>& values) {
    bytes_.Integers(name_ + "." + key, values);
    return *this;
  }
  Model& Number(const std::string& key, float value) {
    bytes_.Float(name_ + "." + key, value);
    return *this;
  }
  Model& Heads(uint32_t heads, uint32_t kv_heads) {
    return Key("attention.head_count", heads)
        .Key("attention.head_count_kv", kv_heads)
        .Key("feed_forward_length", 12);
  }
  Model& Scans(uint32_t inner_size = 20) {
    return Key("ssm.conv_kernel", 4)
        .Key("ssm.state_size", 6)
        .Key("ssm.group_count", 2)
        .Key("ssm.time_step_rank", 4)
        .Key("ssm.inner_size", inner_size);
  }
  Model& Flag(const std::string& key, bool value) {
    bytes_.Bool(name_ + "." + key, value);
    return *this;
  }
  // Sizes in the file's order.
  Model& Tensor(const std::string& name, const std::vector<uint64_t>& sizes, float factor = 1) {
    uint64_t count = 1;
    for (const uint64_t size : sizes) count *= size;
    bytes_.Tensor(name, kF32, sizes, Numbers(count, factor));
    return *this;
  }
  // Tensors of one number, for what a layer has.
  Model& Has(int layer, std::initializer_list<const char*> names) {
    for (const char* name : names) Tensor("blk." + std::to_string(layer) + "." + name, {1});
    return *this;
  }

  StatusOr<ModelConfig> Config() { return ReadModelConfig(Write()); }
  std::string Write() {
    folder_.Write("m.gguf", bytes_.Build());
    return folder_.PathOf("m.gguf");
  }

 private:
  std::string name_;
  GgufBytes bytes_;
  TempFolder folder_;
};

TEST_CASE("GGUF layers: Qwen3.5's states, whose key heads take turns") {
  Model model("qwen35", 3);
  model.Heads(2, 1)
      .Key("attention.key_length", 16)
      .Key("attention.value_length", 16)
      .Key("rope.dimension_count", 4)
      .Key("ssm.conv_kernel", 4)
      .Key("ssm.state_size", 6)
      .Key("ssm.group_count", 2)
      .Key("ssm.time_step_rank", 4)
      .Key("ssm.inner_size", 20)
      .Key("nextn_predict_layers", 1)
      .Has(0, {"ssm_out.weight"})
      .Has(1, {"attn_output.weight"});
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->architecture == "Qwen3_5ForCausalLM");
  CHECK(config->num_layers == 2);
  CHECK(config->recurrent.layers == Bools{true, false});
  CHECK(config->recurrent.num_key_heads == 2);
  CHECK(config->recurrent.num_value_heads == 4);
  CHECK(config->recurrent.key_dim == 6);
  CHECK(config->recurrent.value_dim == 5);
  CHECK(config->recurrent.key_heads_take_turns);
  CHECK(config->recurrent.num_turns() == 2);
  CHECK(config->rotary_dim == 4);
}

TEST_CASE("GGUF layers: the index of sparse attention") {
  Model model("deepseek32", 2);
  model.Heads(2, 1)
      .Key("attention.key_length_mla", 12)
      .Key("attention.value_length_mla", 6)
      .Key("attention.q_lora_rank", 8)
      .Key("attention.kv_lora_rank", 10)
      .Key("rope.dimension_count", 4)
      .Key("attention.indexer.head_count", 3)
      .Key("attention.indexer.key_length", 16)
      .Key("attention.indexer.top_k", 5);
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->architecture == "DeepseekV32ForCausalLM");
  CHECK(config->index.num_heads == 3);
  CHECK(config->index.dim == 16);
  CHECK(config->index.num_keys == 5);
  CHECK_FALSE(config->index.is_interleaved);
}

TEST_CASE("GGUF layers: DeepSeek's latents and routing, and its class by the router's bias") {
  for (const bool has_bias : {false, true}) {
    Model model("deepseek2", 3);
    model.Heads(2, 1)
        .Key("attention.key_length", 14)
        .Key("attention.value_length", 10)
        .Key("attention.key_length_mla", 12)
        .Key("attention.value_length_mla", 6)
        .Key("attention.q_lora_rank", 8)
        .Key("attention.kv_lora_rank", 10)
        .Key("rope.dimension_count", 4)
        .Key("leading_dense_block_count", 1)
        .Key("expert_count", 8)
        .Key("expert_used_count", 2)
        .Key("expert_shared_count", 2)
        .Key("expert_feed_forward_length", 6)
        .Key("expert_group_count", 4)
        .Key("expert_group_used_count", 2)
        .Number("expert_weights_scale", 2.5)
        .Flag("expert_weights_norm", true)
        .Has(1, {"ffn_gate_inp.weight"});
    if (has_bias) model.Has(1, {"exp_probs_b.bias"});
    const auto config = model.Config();
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    CHECK(config->architecture == (has_bias ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"));
    CHECK(config->latent.nope_dim == 8);
    CHECK(config->latent.pe_dim == 4);
    CHECK(config->latent.value_dim == 6);
    CHECK(config->latent.kv_rank == 10);
    CHECK(config->mixture_layers == Bools{false, true, true});
    CHECK(config->num_experts == 8);
    CHECK(config->num_expert_groups == 4);
    CHECK(config->shared_intermediate_size == 12);
    CHECK(config->routed_scaling_factor == 2.5);
    CHECK(config->norm_topk_prob);
    CHECK(config->topk_method == "group_limited_greedy");
  }
}

void CheckScans(const RecurrentConfig& config) {
  CHECK(config.num_value_heads == 4);
  CHECK(config.value_dim == 5);
  CHECK(config.key_dim == 6);
  CHECK(config.num_groups == 2);
}

TEST_CASE("GGUF layers: Granite 4, with experts or dense") {
  for (const bool has_experts : {false, true}) {
    Model model("granitehybrid", 2);
    model.Scans()
        .Key("attention.head_count", 2)
        .Keys("attention.head_count_kv", {0, 1})
        .Key("feed_forward_length", 12)
        .Key("expert_shared_feed_forward_length", 10)
        .Number("residual_scale", 0.5)
        .Has(0, {"ssm_out.weight", "ssm_norm.weight", "ssm_conv1d.bias"})
        .Has(1, {"attn_output.weight"});
    if (has_experts) {
      model.Key("expert_count", 4).Key("expert_used_count", 2);
      model.Has(0, {"ffn_gate_inp.weight"}).Has(1, {"ffn_gate_inp.weight"});
    }
    const auto config = model.Config();
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    CHECK(config->recurrent.layers == Bools{true, false});
    CheckScans(config->recurrent);
    CHECK(config->recurrent.has_conv_bias);
    CHECK(config->residual_multiplier == 0.5);
    CHECK(config->IsMixture(1) == has_experts);
    CHECK((has_experts ? config->shared_intermediate_size : config->intermediate_size) == 10);
    CHECK_FALSE(config->HasRope(1));
  }
}

TEST_CASE("GGUF layers: each of Nemotron-H's is one part") {
  Model model("nemotron_h_moe", 4);
  model.Scans()
      .Key("attention.head_count", 2)
      .Keys("attention.head_count_kv", {0, 1, 0, 0})
      .Keys("feed_forward_length", {0, 0, 12, 14})
      .Key("expert_count", 4)
      .Key("expert_used_count", 2)
      .Key("expert_shared_count", 1)
      .Key("expert_feed_forward_length", 6)
      .Key("expert_shared_feed_forward_length", 10)
      .Key("moe_latent_size", 4)
      .Has(0, {"ssm_out.weight", "ssm_norm.weight"})
      .Has(1, {"attn_output.weight"})
      .Has(2, {"ffn_up.weight"})
      .Has(3, {"ffn_gate_inp.weight", "ffn_up_exps.weight"});
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == Bools{true, false, false, false});
  CHECK(config->recurrent.kv_layers == Bools{false, true, false, false});
  CHECK(config->mixture_layers == Bools{false, false, false, true});
  CheckScans(config->recurrent);
  CHECK(config->moe_latent_size == 4);
  CHECK(config->shared_intermediate_size == 10);
}

TEST_CASE("GGUF layers: Jamba's are not counted by periods") {
  Model model("jamba", 3);
  model.Key("attention.head_count", 2)
      .Keys("attention.head_count_kv", {0, 0, 1})
      .Key("feed_forward_length", 12)
      .Key("ssm.conv_kernel", 4)
      .Key("ssm.state_size", 6)
      .Key("ssm.time_step_rank", 3)
      .Key("ssm.inner_size", 16)
      .Key("expert_count", 4)
      .Key("expert_used_count", 2)
      .Has(0, {"ssm_out.weight"})
      .Has(1, {"ssm_out.weight", "ffn_gate_inp.weight"})
      .Has(2, {"attn_output.weight"});
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == Bools{true, true, false});
  CHECK(config->mixture_layers == Bools{false, true, false});
  CHECK(config->recurrent.step_rank == 3);
  CHECK(config->recurrent.num_value_heads == 16);
  CHECK(config->moe_intermediate_size == 12);
}

TEST_CASE("GGUF layers: Falcon-H1 and Mamba-2") {
  Model beside("falcon-h1", 2);
  beside.Scans().Heads(2, 1).Has(0, {"ssm_out.weight", "attn_output.weight"});
  const auto falcon = beside.Config();
  INFO(falcon.status().ToString());
  REQUIRE(falcon.ok());
  CHECK(falcon->recurrent.HasState(1));
  CHECK(falcon->recurrent.HasKv(1));
  CHECK_FALSE(falcon->recurrent.has_norm);
  CheckScans(falcon->recurrent);
  Model alone("mamba2", 2);
  alone.Scans().Key("attention.head_count", 0).Key("feed_forward_length", 0);
  const auto mamba = alone.Config();
  INFO(mamba.status().ToString());
  REQUIRE(mamba.ok());
  CHECK(mamba->recurrent.layers == Bools{true, true});
  CheckScans(mamba->recurrent);
}

TEST_CASE("GGUF layers: LFM2's convolutions and experts") {
  Model model("lfm2moe", 3);
  model.Key("attention.head_count", 2)
      .Keys("attention.head_count_kv", {0, 1, 0})
      .Key("feed_forward_length", 12)
      .Key("shortconv.l_cache", 3)
      .Key("leading_dense_block_count", 1)
      .Key("expert_count", 4)
      .Key("expert_used_count", 2)
      .Key("expert_feed_forward_length", 6)
      .Has(0, {"shortconv.out_proj.weight"})
      .Has(1, {"attn_output.weight"})
      .Has(2, {"shortconv.out_proj.weight"});
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->recurrent.layers == Bools{true, false, true});
  CHECK(config->mixture_layers == Bools{false, true, true});
  CHECK(config->num_experts == 4);
}

TEST_CASE("GGUF layers: Gemma 4's heads of two kinds") {
  Model model("gemma4", 3);
  model.Key("attention.head_count", 4)
      .Keys("attention.head_count_kv", {2, 2, 1})
      .Keys("feed_forward_length", {12, 12, 24})
      .Key("attention.key_length", 16)
      .Key("attention.value_length", 16)
      .Key("attention.key_length_swa", 8)
      .Key("attention.value_length_swa", 8)
      .Key("attention.sliding_window", 4)
      .Key("attention.shared_kv_layers", 0)
      .Key("rope.dimension_count", 16)
      .Number("rope.freq_base", 1e6)
      .Number("rope.freq_base_swa", 1e4);
  for (int i = 0; i < 3; ++i) model.Has(i, {"attn_output.weight", "attn_k.weight"});
  const auto config = model.Config();
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  CHECK(config->head_dim == 8);
  CHECK(config->HeadDimOf(2) == 16);
  CHECK(config->uneven.num_global_kv_heads == 1);
  CHECK(config->uneven.keys_are_values);
  CHECK(config->intermediate_size == 12);
  CHECK(config->uneven.has_wide_mlps);
  CHECK(config->rope.theta == 1e6);
  CHECK(config->local_rope.theta == 1e4);
}

TEST_CASE("GGUF config: a factor of RoPE without a type is linear") {
  const auto rope = [](const char* key, float factor) {
    Model model("llama", 1);
    model.Heads(2, 1).Number(key, factor);
    const auto config = model.Config();
    INFO(config.status().message());
    REQUIRE(config.ok());
    return config->rope;
  };
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    CHECK(rope(key, 4).type == RopeType::kLinear);
    CHECK(rope(key, 4).factor == 4);
    CHECK(rope(key, 0).type == RopeType::kDefault);
  }
}

TEST_CASE("GGUF layers: numbers that cannot be are refused by their keys") {
  CHECK_THAT(Model("llama", 0).Heads(2, 1).Config().status().message(),
             Contains("llama.block_count is 0"));
  CHECK_THAT(
      Model("llama", 2).Heads(2, 1).Key("nextn_predict_layers", 2).Config().status().message(),
      Contains("llama.block_count is 2"));
  CHECK_THAT(Model("llama", 2)
                 .Heads(2, 1)
                 .Keys("rope.freq_base", {10000, 10000})
                 .Config()
                 .status()
                 .message(),
             Contains("llama.rope.freq_base must be a number"));
  Model uncut("mamba2", 1);
  uncut.Scans(21).Key("attention.head_count", 0);
  CHECK_THAT(uncut.Config().status().message(), Contains("mamba2.ssm.inner_size is 21"));
  CHECK_THAT(Model("deepseek2", 1).Heads(2, 1).Config().status().message(),
             Contains("deepseek2.attention.key_length_mla"));
}

std::vector<float> Floats(const StatusOr<WeightTensor>& tensor) {
  INFO(tensor.status().ToString());
  REQUIRE(tensor.ok());
  const auto* data = tensor->view().Data<float>();
  return {data, data + tensor->view().NumElements()};
}

TEST_CASE("GGUF weights: what a converter changes is undone") {
  Model model("granitehybrid", 1);
  model.Scans()
      .Key("attention.head_count", 2)
      .Key("attention.head_count_kv", 1)
      .Key("feed_forward_length", 12)
      .Key("expert_shared_feed_forward_length", 10)
      .Tensor("blk.0.ssm_a", {1, 4}, -0.5)
      .Tensor("blk.0.ssm_norm.weight", {10, 2})
      .Tensor("blk.0.ssm_conv1d.weight", {3, 2})
      .Tensor("blk.0.ssm_out.weight", {2, 2});
  const std::string path = model.Write();
  const auto config = ReadModelConfig(path);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const auto weights = OpenWeights(path, "auto", *config);
  REQUIRE(weights.ok());
  const std::string mamba = "model.layers.0.mamba.";
  const std::vector<float> decay = Floats((*weights)->Get(mamba + "A_log", 0, 4));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(std::exp(decay[i]) == Approx(0.5 * static_cast<double>(i + 1)));
  }
  CHECK(Floats((*weights)->Get(mamba + "norm.weight", 0, 20)).back() == 20);
  CHECK(Floats((*weights)->GetFromStack(mamba + "conv1d.weight", 1, 2, 1, 3)) ==
        std::vector<float>{4, 5, 6});
  CHECK_FALSE((*weights)->GetFromStack(mamba + "conv1d.weight", 1, 3, 1, 3).ok());
  CHECK_FALSE((*weights)->Get(mamba + "out_proj.weight", 4, 1).ok());
}

TEST_CASE("GGUF weights: halves of experts' matrices, and matrices of single heads") {
  Model gemma("gemma4", 1);
  gemma.Heads(2, 1)
      .Key("expert_count", 2)
      .Key("expert_used_count", 1)
      .Key("expert_feed_forward_length", 2);
  gemma.Tensor("blk.0.ffn_gate_up_exps.weight", {3, 4, 2})
      .Tensor("blk.0.layer_output_scale.weight", {1});
  std::string path = gemma.Write();
  auto config = ReadModelConfig(path);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  auto weights = OpenWeights(path, "auto", *config);
  REQUIRE(weights.ok());
  CHECK(Floats((*weights)->Get("model.layers.0.experts.1.up_proj.weight", 2, 3)) ==
        std::vector<float>{19, 20, 21, 22, 23, 24});
  CHECK(Floats((*weights)->Get("model.layers.0.experts.0.gate_proj.weight", 2, 3)).front() == 1);
  CHECK((*weights)->Has("model.layers.0.layer_scalar"));
  CHECK_FALSE((*weights)->Has("model.layers.0.experts.2.up_proj.weight"));
}

}  // namespace
}  // namespace tandem
