// A model is never in memory twice: a packed tensor gives its pages of the file back.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine_core/models/layers.h"
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

// What `load` adds to the process's memory at its peak, in bytes.
int64_t PeakOf(const std::function<void()>& load) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = StatusBytes("VmRSS:");
  load();
  return StatusBytes("VmHWM:") - before;
}

// A file of zeros of that many bytes behind the header.
void WriteZeros(const TempFolder& folder, const std::string& json, int64_t bytes) {
  std::string header = json;
  header.resize((header.size() + 63) / 64 * 64, ' ');  // unaligned tensors are copied
  const uint64_t size = header.size();
  std::string begin(sizeof size, '\0');
  std::memcpy(begin.data(), &size, sizeof size);
  folder.Write("model.safetensors", begin + header);
  std::filesystem::resize_file(folder.PathOf("model.safetensors"),
                               begin.size() + header.size() + static_cast<size_t>(bytes));
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
    WriteZeros(folder_, header_.dump(), weight_bytes_);
  }

  TempFolder folder_;
  Json header_;
  int64_t weight_bytes_ = 0;
};

TEST_CASE("models: loading peaks at 1.10 of the packed weights") {
  const ModelFolder folder;
  const auto config = ReadModelConfig(folder.path());
  REQUIRE(config.ok());
  const auto backend = MakeCpuBackend({.dtype = DType::kBf16, .num_threads = 2});
  REQUIRE(backend.ok());
  const auto peak = static_cast<double>(PeakOf([&] {
    auto weights = OpenSafetensors(folder.path());
    REQUIRE(weights.ok());
    const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 1, .max_positions = 64};
    const auto model = LoadModel({*config, limits, **weights, **backend});
    REQUIRE(model.ok());
  }));
  const auto packed = static_cast<double>(folder.weight_bytes());
  INFO("weights of " << packed << " bytes, peak " << peak);
  CHECK(peak <= 1.10 * packed);
  CHECK(peak >= 0.95 * packed);  // it was measured at all
}

TEST_CASE("models: one large matrix peaks at 1.10 of what is packed of it") {
  constexpr int64_t kRows = 4096, kColumns = 2000;  // whose rows are no pages
  const int64_t bytes = kRows * kColumns * SizeOf(DType::kBf16);
  const Json header = {
      {"w.weight",
       {{"dtype", "BF16"}, {"shape", {kRows, kColumns}}, {"data_offsets", {0, bytes}}}}};
  const TempFolder folder;
  WriteZeros(folder, header.dump(), bytes);
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  const auto backend = MakeCpuBackend({.dtype = DType::kBf16, .num_threads = 1});
  REQUIRE(backend.ok());
  const ModelConfig config;
  const ModelLimits limits;
  const LoadContext context = {config, limits, **weights, **backend};
  const StoredMatrix block[] = {{.name = "w", .rows = kRows, .columns = kColumns}};
  for (const WeightFormat format :
       {WeightFormat::kCompute, WeightFormat::kInt8, WeightFormat::kInt4Group32}) {
    for (const bool is_gated : {false, true}) {
      int64_t packed = 0;
      const int64_t peak = PeakOf([&] {
        const auto layer = LoadLinear(context, block, {.is_gated = is_gated, .format = format});
        REQUIRE(layer.ok());
        packed = layer->weight->num_bytes();
      });
      CAPTURE(static_cast<int>(format), is_gated, packed, peak);
      CHECK(peak >= packed * 9 / 10);  // it was measured
      // Beside a tenth, less than a MiB for what the process allocates on the way.
      CHECK(peak <= packed * 11 / 10 + (1 << 20));
    }
  }
}

}  // namespace
}  // namespace tandem
