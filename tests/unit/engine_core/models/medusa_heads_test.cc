#include "engine_core/models/medusa_heads.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine_core/models/registry.h"
#include "tests/support/files/head_folder.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

const std::string kTarget = TANDEM_GOLDEN_DIR "/models/llama_plain";
constexpr ModelLimits kLimits = {.max_tokens = 8, .max_logits_rows = 4, .max_positions = 64};

class Loader {
 public:
  Loader()
      : config_(ReadModelConfig(kTarget).value()),
        weights_(OpenSafetensors(kTarget).value()),
        backend_(MakeReferenceBackend()),
        target_(LoadModel({config_, kLimits, *weights_, *backend_}).value()) {}

  StatusOr<std::unique_ptr<MedusaHeads>> Load(const MedusaShape& shape,
                                              const std::vector<FileTensor>& tensors) {
    const TempFolder folder;
    folder.Write("config.json", MedusaConfigText(shape));
    folder.Write("model.safetensors", SafetensorsBytes(tensors));
    ASSIGN_OR_RETURN(const MedusaConfig config, ReadMedusaConfig(folder.path(), config_));
    ASSIGN_OR_RETURN(const std::unique_ptr<Weights> weights, OpenSafetensors(folder.path()));
    return MedusaHeads::Load({config_, kLimits, *weights, *backend_}, config, *target_);
  }

  MedusaShape shape() const {
    return {.hidden_size = config_.hidden_size, .vocab_size = config_.vocab_size};
  }
  const ModelConfig& config() const { return config_; }
  Backend& backend() { return *backend_; }

 private:
  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> target_;
};

std::vector<float> Values(const std::vector<FileTensor>& tensors, const std::string& name) {
  for (const FileTensor& tensor : tensors) {
    if (tensor.name != name) continue;
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  return {};
}

// W x + bias
std::vector<float> Multiply(const std::vector<float>& matrix, const std::vector<float>& x,
                            const std::vector<float>& bias) {
  std::vector<float> out(matrix.size() / x.size());
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = bias.empty() ? 0 : bias[i];
    for (size_t j = 0; j < x.size(); ++j) sum += double{matrix[i * x.size() + j]} * x[j];
    out[i] = static_cast<float>(sum);
  }
  return out;
}

TEST_CASE("Medusa's heads: x += silu(W x + b) in each layer, then a table of its own") {
  Loader loader;
  for (const bool is_vllms : {false, true}) {
    MedusaShape shape = loader.shape();
    shape.num_layers = 2;
    shape.is_vllms = is_vllms;
    const std::vector<FileTensor> tensors = MedusaTensors(shape, 3);
    const auto heads = loader.Load(shape, tensors);
    INFO(heads.status().ToString());
    REQUIRE(heads.ok());
    CHECK((*heads)->num_heads() == 3);
    const auto hidden = static_cast<size_t>(shape.hidden_size);
    std::vector<float> states(3 * hidden);
    for (size_t i = 0; i < states.size(); ++i) states[i] = std::sin(static_cast<float>(i));
    const OwnedTensor in = UploadAct(loader.backend(), states, {3, shape.hidden_size});
    const OwnedTensor rows = UploadInts(loader.backend(), {2, 0}, {2});
    const OwnedTensor logits = Make(loader.backend(), DType::kF32, {2, shape.vocab_size});
    for (size_t head = 0; head < 3; ++head) {
      (*heads)->Logits(head, logits, in, rows);
      const std::vector<float> got = Floats(loader.backend(), logits);
      for (size_t r = 0; r < 2; ++r) {
        const auto first = states.begin() + static_cast<ptrdiff_t>((r == 0 ? 2 : 0) * hidden);
        std::vector<float> x(first, first + static_cast<ptrdiff_t>(hidden));
        const std::string number = std::to_string(head);
        for (const std::string layer : {"0", "1"}) {
          const std::string name =
              is_vllms ? "blocks." + number + ".layers." + layer : number + "." + layer + ".linear";
          const std::vector<float> y =
              Multiply(Values(tensors, name + ".weight"), x, Values(tensors, name + ".bias"));
          for (size_t i = 0; i < hidden; ++i) x[i] += y[i] / (1 + std::exp(-y[i]));
        }
        const std::vector<float> want = Multiply(
            Values(tensors, (is_vllms ? "lm_heads." + number : number + ".2") + ".weight"), x, {});
        for (size_t i = 0; i < want.size(); ++i) {
          REQUIRE(got[r * want.size() + i] == Approx(want[i]).margin(1e-3));
        }
      }
    }
  }
}

TEST_CASE("Medusa's heads: a tensor that is missing or has another shape is refused by its name") {
  Loader loader;
  for (const bool is_vllms : {false, true}) {
    MedusaShape shape = loader.shape();
    shape.is_vllms = is_vllms;
    const std::vector<FileTensor> tensors = MedusaTensors(shape, 1);
    for (size_t i = 0; i < tensors.size(); ++i) {
      INFO(tensors[i].name);
      std::vector<FileTensor> changed = tensors;
      std::vector<int64_t> sizes = tensors[i].shape;
      ++sizes[0];
      changed[i] = RandomTensor(tensors[i].name, sizes, 2);
      CHECK_THAT(loader.Load(shape, changed).status().message(), Contains(tensors[i].name));
      if (tensors[i].name.ends_with(".bias")) continue;
      changed.erase(changed.begin() + static_cast<ptrdiff_t>(i));
      CHECK_FALSE(loader.Load(shape, changed).ok());
    }
  }
}

TEST_CASE("Medusa's config.json: what does not fit is refused by its key") {
  const Loader loader;
  const auto parse = [&](const Json& changes) {
    Json json = Json::parse(MedusaConfigText(loader.shape()));
    json.update(changes);
    return ParseMedusaConfig(json.dump(), loader.config());
  };
  CHECK(parse(Json::object())->num_heads == 3);
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"medusa_num_heads", 0},
           {"medusa_num_heads", 1000},
           {"medusa_num_layers", -1},
           {"medusa_num_layers", "two"},
           {"hidden_size", 1},
           {"vocab_size", loader.config().vocab_size + 1},
           {"truncated_vocab_size", loader.config().vocab_size / 2},
           {"original_lm_head", "no"}}) {
    INFO(key << " " << value.dump());
    CHECK_THAT(parse({{key, value}}).status().message(), Contains(key));
  }
  CHECK_THAT(ParseMedusaConfig("{}", loader.config()).status().message(), Contains("num_heads"));
}

}  // namespace
}  // namespace tandem
