// A model is never in memory twice: a packed tensor gives its pages of the file back.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine_core/models/registry.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

// An entry of /proc/self/status that is in kB, in bytes.
int64_t StatusBytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == key && in >> kib) return kib * 1024;
  }
  return 0;
}

// A Llama of 16 layers whose weights are the zeros of a sparse file. Deletes the folder.
class ModelFolder {
 public:
  ModelFolder() {
    const Json config = {{"architectures", {"LlamaForCausalLM"}},
                         {"vocab_size", 4096},
                         {"hidden_size", 512},
                         {"intermediate_size", 1408},
                         {"num_hidden_layers", 16},
                         {"num_attention_heads", 8}};
    folder_.Write("config.json", config.dump());
    WriteWeights();
  }
  const std::string& path() const { return folder_.path(); }
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t bytes = 2;
    for (const int64_t dim : shape) bytes *= dim;
    header_[name] = {{"dtype", "BF16"},
                     {"shape", shape},
                     {"data_offsets", {weight_bytes_, weight_bytes_ + bytes}}};
    weight_bytes_ += bytes;
  }
  void WriteWeights() {
    Add("model.embed_tokens.weight", {4096, 512});
    Add("lm_head.weight", {4096, 512});
    Add("model.norm.weight", {512});
    for (int i = 0; i < 16; ++i) {
      const std::string prefix = "model.layers." + std::to_string(i) + ".";
      for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
        Add(prefix + "self_attn." + name + ".weight", {512, 512});
      }
      Add(prefix + "mlp.gate_proj.weight", {1408, 512});
      Add(prefix + "mlp.up_proj.weight", {1408, 512});
      Add(prefix + "mlp.down_proj.weight", {512, 1408});
      Add(prefix + "input_layernorm.weight", {512});
      Add(prefix + "post_attention_layernorm.weight", {512});
    }
    const std::string header = header_.dump();
    const uint64_t header_bytes = header.size();
    std::string begin(sizeof header_bytes, '\0');
    std::memcpy(begin.data(), &header_bytes, sizeof header_bytes);
    const std::string file = folder_.PathOf("model.safetensors");
    std::ofstream(file, std::ios::binary) << begin << header;
    std::filesystem::resize_file(
        file, sizeof header_bytes + header_bytes + static_cast<uint64_t>(weight_bytes_));
  }

  TempFolder folder_;
  Json header_;
  int64_t weight_bytes_ = 0;
};

TEST_CASE("models: loading peaks at 1.15 of the packed weights") {
  const ModelFolder folder;
  const auto config = ReadModelConfig(folder.path());
  REQUIRE(config.ok());
  const auto backend = MakeCpuBackend({.dtype = DType::kBf16, .num_threads = 2});
  REQUIRE(backend.ok());
  const int64_t before = StatusBytes("VmRSS:");
  REQUIRE(before > 0);
  auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 1, .max_positions = 64};
  const auto model = LoadModel({*config, limits, **weights, **backend});
  REQUIRE(model.ok());
  const auto packed = static_cast<double>(folder.weight_bytes());
  const auto peak = static_cast<double>(StatusBytes("VmHWM:") - before);
  INFO("weights of " << packed << " bytes, peak " << peak);
  CHECK(peak <= 1.15 * packed);
  CHECK(peak >= 0.95 * packed);  // it was measured at all
}

}  // namespace
}  // namespace tandem
