#include "engine_core/models/eagle_head.h"

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine_core/models/registry.h"
#include "tests/support/files/head_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

const std::string kTarget = TANDEM_GOLDEN_DIR "/models/llama_plain";
constexpr ModelLimits kLimits = {.max_tokens = 8, .max_logits_rows = 1, .max_positions = 64};

HeadShape ShapeFor(const ModelConfig& target, bool is_eagle3) {
  return {.is_eagle3 = is_eagle3,
          .hidden_size = target.hidden_size,
          .vocab_size = target.vocab_size,
          .draft_vocab_size = target.vocab_size / 2};
}

EagleVersion VersionOf(bool is_eagle3) {
  return is_eagle3 ? EagleVersion::kEagle3 : EagleVersion::kEagle;
}

TEST_CASE("an EAGLE head's config.json: what does not fit the target is refused by its key") {
  const ModelConfig target = ReadModelConfig(kTarget).value();
  const auto parse = [&](bool is_eagle3, const Json& changes) {
    Json json = Json::parse(HeadConfigText(ShapeFor(target, is_eagle3)));
    json.update(changes);
    return ParseEagleConfig(json.dump(), VersionOf(is_eagle3), target);
  };
  for (const bool is_eagle3 : {false, true}) {
    CHECK(parse(is_eagle3, Json::object()).ok());
    for (const auto& [changes, words] : std::vector<std::pair<Json, std::string>>{
             {{{"num_hidden_layers", 2}}, "num_hidden_layers"},
             {{{"hidden_size", target.hidden_size + 32}}, "hidden_size"},
             {{{"vocab_size", target.vocab_size - 1}}, "vocab_size"},
             {{{"architectures", {"Qwen2ForCausalLM"}}}, "Qwen2ForCausalLM"},
             {{{"architectures", {"LlamaForCausalLM", 1}}, {"hidden_size", "x"}}, "hidden_size"},
             {{{"rope_scaling", {{"rope_type", "unheard of"}}}}, "unheard of"}}) {
      INFO(changes.dump());
      const auto config = parse(is_eagle3, changes);
      REQUIRE_FALSE(config.ok());
      CHECK_THAT(config.status().message(), Contains(words));
    }
  }
  const auto states = [](const Json& layers) {
    return Json{{"eagle_aux_hidden_state_layer_ids", layers}};
  };
  const auto num_layers = target.num_layers;
  for (const Json& layers : {Json::array(), Json({num_layers + 1}), Json({-1}), Json({0.5}),
                             Json("all"), Json({0, 0, 0, 0, 0, 0, 0, 0, 0}), Json({1e30})}) {
    INFO(layers.dump());
    CHECK_FALSE(parse(true, states(layers)).ok());
  }
  CHECK(parse(true, states({0, num_layers}))->state_layers ==
        std::vector<int>{0, static_cast<int>(num_layers)});
  for (const Json& changes :
       {Json{{"draft_vocab_size", target.vocab_size + 1}}, Json{{"draft_vocab_size", 0}},
        Json{{"target_hidden_size", 1}}, Json{{"eagle_config", 3}},
        Json{{"eagle_config", {{"use_aux_hidden_state", false}}}},
        Json{{"norm_before_residual", "yes"}}, Json{{"norm_output", 1}}}) {
    INFO(changes.dump());
    CHECK_FALSE(parse(true, changes).ok());
  }
  CHECK_FALSE(ParseEagleConfig("[]", EagleVersion::kEagle, target).ok());
}

TEST_CASE("an EAGLE head's published places of the state layers: both, or vLLM's default") {
  ModelConfig target = ReadModelConfig(kTarget).value();
  Json json = Json::parse(HeadConfigText(ShapeFor(target, true)));
  json.erase("eagle_aux_hidden_state_layer_ids");
  const auto parse = [&] { return ParseEagleConfig(json.dump(), EagleVersion::kEagle3, target); };
  target.num_layers = 4;
  CHECK_THAT(parse().status().message(), Contains("eagle_aux_hidden_state_layer_ids"));
  target.num_layers = 32;
  CHECK(parse()->state_layers == std::vector<int>{2, 16, 29});
  json["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {1, 2}}};
  CHECK(parse()->state_layers == std::vector<int>{1, 2});
}

// Loads a head whose tensors were changed.
class Loader {
 public:
  Loader()
      : config_(ReadModelConfig(kTarget).value()),
        weights_(OpenSafetensors(kTarget).value()),
        backend_(MakeReferenceBackend()),
        target_(LoadModel({config_, kLimits, *weights_, *backend_}).value()) {}

  const ModelConfig& target() const { return config_; }

  Status Load(const HeadShape& shape,
              const std::function<void(std::vector<FileTensor>*)>& change = {}) {
    const TempFolder folder;
    folder.Write("config.json", HeadConfigText(shape));
    std::vector<FileTensor> tensors = HeadTensors(shape, 1);
    if (change) change(&tensors);
    folder.Write("model.safetensors", SafetensorsBytes(tensors));
    ASSIGN_OR_RETURN(const EagleConfig config,
                     ReadEagleConfig(folder.path(), VersionOf(shape.is_eagle3), config_));
    ASSIGN_OR_RETURN(const std::unique_ptr<Weights> weights, OpenSafetensors(folder.path()));
    return EagleHead::Load({config.layer, kLimits, *weights, *backend_}, config, *target_).status();
  }

 private:
  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> target_;
};

FileTensor* Find(std::vector<FileTensor>* tensors, const std::string& name) {
  for (FileTensor& tensor : *tensors) {
    if (tensor.name == name) return &tensor;
  }
  FAIL(name);
  return nullptr;
}

TEST_CASE("an EAGLE head: a tensor that is missing or has another shape is refused by its name") {
  Loader loader;
  for (const bool is_eagle3 : {false, true}) {
    const HeadShape shape = ShapeFor(loader.target(), is_eagle3);
    CHECK(loader.Load(shape).ok());
    for (const FileTensor& tensor : HeadTensors(shape, 1)) {
      INFO(tensor.name);
      const Status missing = loader.Load(shape, [&](std::vector<FileTensor>* tensors) {
        std::erase_if(*tensors, [&](const FileTensor& t) { return t.name == tensor.name; });
      });
      REQUIRE_FALSE(missing.ok());
      if (tensor.name.find("q_proj") == std::string::npos) {
        const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
        CHECK_THAT(missing.message(), Contains(module));
      }
      const Status other = loader.Load(shape, [&](std::vector<FileTensor>* tensors) {
        std::vector<int64_t> sizes = tensor.shape;
        sizes[0] += 1;
        *Find(tensors, tensor.name) = RandomTensor(tensor.name, sizes, 2);
      });
      REQUIRE_FALSE(other.ok());
      CHECK_THAT(other.message(), Contains(tensor.name));
    }
  }
}

TEST_CASE("an EAGLE-3 head: d2t names tokens of the target") {
  Loader loader;
  const HeadShape shape = ShapeFor(loader.target(), true);
  const auto load = [&](int64_t at, int64_t offset) {
    return loader.Load(shape, [&](std::vector<FileTensor>* tensors) {
      auto* bytes = Find(tensors, "d2t")->bytes.data() + at * 8;
      std::memcpy(bytes, &offset, sizeof(offset));
    });
  };
  CHECK(load(5, -5).ok());
  CHECK(load(5, shape.vocab_size - 6).ok());
  for (const int64_t offset : {int64_t{-6}, shape.vocab_size - 5, INT64_MAX, INT64_MIN}) {
    CHECK_THAT(load(5, offset).message(), Contains("d2t: number 5"));
  }
  CHECK(loader
            .Load({.is_eagle3 = true,
                   .hidden_size = shape.hidden_size,
                   .vocab_size = shape.vocab_size,
                   .draft_vocab_size = shape.vocab_size})
            .ok());
}

TEST_CASE("an EAGLE head with tables of its own, and with a bias") {
  Loader loader;
  for (const bool is_eagle3 : {false, true}) {
    HeadShape shape = ShapeFor(loader.target(), is_eagle3);
    shape.has_own_tables = shape.has_fc_bias = true;
    CHECK(loader.Load(shape).ok());
  }
}

}  // namespace
}  // namespace tandem
