// Adapters for a small model that is made up: what is read, and every way in which a folder can be
// wrong. Refusals name what is wrong; nothing ends the process.

#include "engine_core/adapters/adapter_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/mailbox.h"
#include "engine_core/adapters/adapter_loader.h"
#include "tests/support/files/adapter_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// q, k and v in one matrix, a gate in another, an embedding.
class SmallModel {
 public:
  SmallModel() : backend_(MakeReferenceBackend()) {
    AddSite({{"m.q_proj", 6, 0, 6, 0}, {"m.k_proj", 2, 0, 2, 6}, {"m.v_proj", 2, 0, 2, 8}}, 10, 4,
            false);
    AddSite({{"m.gate_up_proj", 6, 0, 6, 0}}, 6, 4, true);
    AddSite({{"m.embed_tokens", 9, 0, 9, 0}}, 9, 4, false, /*is_embedding=*/true);
  }
  AdapterReader Reader(int64_t max_rank = 8) const { return {&sites_, backend_.get(), max_rank}; }
  static std::vector<ModuleShape> Modules() {
    return {{"m.q_proj", 6, 4}, {"m.v_proj", 2, 4}, {"m.gate_up_proj", 6, 4}};
  }

 private:
  void AddSite(std::vector<AdapterSite::Part> parts, int64_t rows, int64_t columns, bool is_gated,
               bool is_embedding = false) {
    std::vector<float> zeros(static_cast<size_t>(rows * columns));
    const MatrixSource block[] = {Tensor(zeros.data(), DType::kF32, {rows, columns})};
    matrices_.push_back((is_gated ? backend_->PackGated(block) : backend_->Pack(block)).value());
    sites_.Add({.parts = std::move(parts),
                .columns = columns,
                .is_embedding = is_embedding,
                .matrix = matrices_.back()->form()});
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<PackedMatrix>> matrices_;
  AdapterSites sites_;
};

std::vector<FileTensor> GoodTensors() { return RandomPairs(SmallModel::Modules(), 3, 1); }

TEST_CASE("adapter reader: the matrices that an adapter changes get a pair, others none") {
  const SmallModel model;
  const TempFolder folder;
  std::vector<FileTensor> tensors = GoodTensors();
  tensors.pop_back();
  tensors.pop_back();                                                             // the gate's
  tensors.push_back(RandomTensor("m.embed_tokens.lora_embedding_A", {3, 9}, 1));  // no prefix
  tensors.push_back(RandomTensor("m.embed_tokens.lora_embedding_B", {4, 3}, 1));
  tensors.push_back(RandomTensor("base_model.model.m.embed_tokens.base_layer.weight", {9, 4}, 1));
  tensors.push_back(RandomTensor("base_model.model.lm_head.base_layer.bias", {9}, 1));  // Phi's
  WriteAdapter(folder, "a", AdapterConfigText(3, 6), tensors);
  const auto adapter = model.Reader().Read("a", folder.PathOf("a"));
  INFO(adapter.status().ToString());
  REQUIRE(adapter.ok());
  CHECK(adapter->weights->pair(0) != nullptr);
  CHECK(adapter->weights->pair(1) == nullptr);
  CHECK(adapter->weights->pair(2) != nullptr);
  CHECK(adapter->weights->num_bytes() <= model.Reader().max_adapter_bytes() * 2);
}

// As PEFT spells the modules of a text model beside a vision tower, in each of transformers' ways,
// of one without its head, and of GPT-2, whose first files lack a part of their names.
TEST_CASE("adapter reader: a module is known wherever the class that was trained had it") {
  const SmallModel model;
  const TempFolder folder;
  AdapterReader reader = model.Reader();
  reader.AddModules({{"model.layers.0.q_proj", {.rows = 6, .columns = 4}},
                     {"lm_head", {.rows = 9, .columns = 4}},
                     {"h.0.c_attn", {.rows = 6, .columns = 4}}});
  const auto read = [&](const std::vector<ModuleShape>& modules, const std::string& more = "") {
    WriteAdapter(folder, "a", AdapterConfigText(3, 6, more), RandomPairs(modules, 3, 1));
    return reader.Read("a", folder.PathOf("a")).status();
  };
  for (const char* name :
       {"model.layers.0.q_proj", "model.language_model.layers.0.q_proj",
        "language_model.model.layers.0.q_proj", "layers.0.q_proj", "transformer.h.0.c_attn"}) {
    CAPTURE(name);
    CHECK(read({{name, 6, 4}}).ok());
  }
  CHECK(read({{"language_model.lm_head", 9, 4}}).ok());
  for (const char* name :
       {"model.visual.layers.0.q_proj", "vision_tower.model.layers.0.q_proj",
        "model.language_model.layers.1.q_proj", "language_model.layers.0.q_proj"}) {
    CHECK(read({{name, 6, 4}}).message() == "the model has no module " + std::string(name));
  }
  CHECK(read({{"model.layers.0.q_proj", 6, 4}, {"model.language_model.layers.0.q_proj", 6, 4}})
            .message() == "model.layers.0.q_proj has more than one pair");
  // Patterns are about the names in the file, and so are messages.
  const std::string ranks = R"("rank_pattern": {"^model.language_model.layers.0.q_proj": 2})";
  CHECK(read({{"model.language_model.layers.0.q_proj", 6, 4}}, ranks).message() ==
        "model.language_model.layers.0.q_proj.lora_A has shape [3, 4], the model and the rank 2 "
        "need [2, 4]");
}

TEST_CASE("adapter reader: modules of other ranks are checked and not packed") {
  const SmallModel model;
  const TempFolder folder;
  AdapterReader reader = model.Reader();
  const int64_t own_bytes = reader.max_adapter_bytes();
  const auto read = [&](const ModuleShape& other) {
    std::vector<ModuleShape> modules = SmallModel::Modules();
    modules.push_back(other);
    WriteAdapter(folder, "a", AdapterConfigText(3, 6), RandomPairs(modules, 3, 1));
    return reader.Read("a", folder.PathOf("a"));
  };
  CHECK(read({"next.down_proj", 5, 7}).status().message().find("but received [next.down_proj]") !=
        std::string::npos);
  reader.AddModules({{"next.down_proj", {.rows = 5, .columns = 7}}});
  CHECK(reader.max_adapter_bytes() > own_bytes);
  const auto adapter = read({"next.down_proj", 5, 7});
  INFO(adapter.status().ToString());
  REQUIRE(adapter.ok());
  CHECK(adapter->weights->pair(0) != nullptr);
  CHECK(read({"next.down_proj", 4, 7}).status().message().find("next.down_proj.lora_B has shape") !=
        std::string::npos);
  CHECK(read({"last.down_proj", 5, 7}).status().message() ==
        "the model has no module last.down_proj");
}

// Two experts of Mixtral's names, which transformers 5 calls otherwise.
TEST_CASE("adapter reader: pairs of all experts in one tensor each are those of each") {
  const SmallModel model;
  const TempFolder folder;
  AdapterReader reader = model.Reader();
  const std::string layer = "model.layers.0.";
  for (const char* expert : {"0.", "1."}) {
    const std::string prefix = layer + "block_sparse_moe.experts." + expert;
    reader.AddModules({{prefix + "w1", {.rows = 5, .columns = 4}},
                       {prefix + "w3", {.rows = 5, .columns = 4}},
                       {prefix + "w2", {.rows = 4, .columns = 5}}});
  }
  const auto read = [&](const std::string& experts, std::vector<int64_t> gate_up_b) {
    WriteAdapter(folder, "a", AdapterConfigText(3, 6),
                 {RandomTensor(experts + ".base_layer.lora_A.weight", {6, 4}, 1),
                  RandomTensor(experts + ".base_layer.lora_B.weight", std::move(gate_up_b), 2),
                  RandomTensor(experts + ".lora_A.weight", {6, 5}, 3),
                  RandomTensor(experts + ".lora_B.weight", {4, 6}, 4)});
    return reader.Read("a", folder.PathOf("a")).status();
  };
  for (const char* experts : {"mlp.experts", "block_sparse_moe.experts"}) {
    CHECK(read(layer + experts, {10, 6}).ok());
  }
  const std::string experts = layer + "mlp.experts";
  CHECK(read(experts, {10, 5}).message() ==
        experts + ".base_layer.lora_B.weight has shape [10, 5], which is no stack of 2 experts");
  CHECK(read(experts, {12, 6}).message() ==
        experts + ".base_layer.lora_B has shape [6, 3], the model and the rank 3 need [5, 3]");
  CHECK(read(experts, {10, 4}).message().find("the rank 3 need [5, 3]") != std::string::npos);
  CHECK(read("model.layers.1.mlp.experts", {10, 6}).message().find("model.layers.1.mlp.experts") !=
        std::string::npos);
}

// PEFT gives gate and up twice the rank of the others, and names the parameter in the pattern.
TEST_CASE("adapter reader: patterns know a stack by the parameter that it changes") {
  const SmallModel model;
  const TempFolder folder;
  AdapterReader reader = model.Reader();
  const std::string experts = "model.layers.0.mlp.experts";
  for (const char* expert : {".0.", ".1."}) {
    reader.AddModules({{experts + expert + "gate_proj", {.rows = 5, .columns = 4}},
                       {experts + expert + "up_proj", {.rows = 5, .columns = 4}},
                       {experts + expert + "down_proj", {.rows = 4, .columns = 5}}});
  }
  const auto read = [&](const std::string& ranks, const std::vector<FileTensor>& tensors) {
    WriteAdapter(folder, "a", AdapterConfigText(3, 6, R"("rank_pattern": {)" + ranks + "}"),
                 tensors);
    return reader.Read("a", folder.PathOf("a")).status();
  };
  const std::vector<FileTensor> gate_up = {RandomTensor(experts + ".lora_A.weight", {8, 4}, 1),
                                           RandomTensor(experts + ".lora_B.weight", {10, 8}, 2)};
  CHECK(read(R"(".*\\.gate_up_proj": 4)",
             {RandomTensor(experts + ".base_layer.lora_A.weight", {8, 4}, 1),
              RandomTensor(experts + ".base_layer.lora_B.weight", {10, 8}, 2),
              RandomTensor(experts + ".lora_A.weight", {6, 5}, 3),
              RandomTensor(experts + ".lora_B.weight", {4, 6}, 4)})
            .ok());
  // Without a pair of down that of gate and up is no base layer.
  CHECK(read(R"("experts.gate_up_proj": 4)", gate_up).ok());
  CHECK(read(R"("experts.down_proj": 4)", gate_up).message() ==
        experts + ".lora_A has shape [4, 4], the model and the rank 3 need [3, 4]");
  CHECK(read(R"("down_proj": 2)", {RandomTensor(experts + ".lora_A.weight", {4, 5}, 3),
                                   RandomTensor(experts + ".lora_B.weight", {4, 4}, 4)})
            .ok());
}

TEST_CASE("adapter reader: transformers' names for a checkpoint's modules") {
  const SmallModel model;
  const TempFolder folder;
  AdapterReader reader = model.Reader();
  reader.AddModules({{"model.layers.0.block_sparse_moe.gate", {.rows = 2, .columns = 4}},
                     {"backbone.layers.1.mixer.in_proj", {.rows = 5, .columns = 4}}});
  const auto read = [&](const ModuleShape& module) {
    WriteAdapter(folder, "a", AdapterConfigText(3, 6), RandomPairs({module}, 3, 1));
    return reader.Read("a", folder.PathOf("a")).status();
  };
  CHECK(read({"model.layers.0.mlp.gate", 2, 4}).ok());
  CHECK(read({"model.layers.1.mixer.in_proj", 5, 4}).ok());
  CHECK(read({"model.layers.1.mlp.gate", 2, 4}).message() ==
        "the model has no module model.layers.1.mlp.gate");
}

TEST_CASE("adapter reader: a doubt about the base model comes with the adapter") {
  const SmallModel model;
  const TempFolder folder;
  WriteAdapter(folder, "a", AdapterConfigText(3, 6, R"("init_lora_weights": "lora_ga")"),
               GoodTensors());
  const auto adapter = model.Reader().Read("a", folder.PathOf("a"));
  REQUIRE(adapter.ok());
  CHECK(adapter->warning.find("lora_ga") != std::string::npos);
}

TEST_CASE("adapter reader: the digest follows both files") {
  const SmallModel model;
  const TempFolder folder;
  const auto digest = [&](const std::string& config, uint64_t seed) {
    WriteAdapter(folder, "a", config, RandomPairs(SmallModel::Modules(), 3, seed));
    return model.Reader().Read("a", folder.PathOf("a"))->digest;
  };
  const uint64_t first = digest(AdapterConfigText(3, 6), 1);
  CHECK(digest(AdapterConfigText(3, 6), 1) == first);
  CHECK(digest(AdapterConfigText(3, 6), 2) != first);
  CHECK(digest(AdapterConfigText(3, 7), 1) != first);
}

TEST_CASE("adapter reader: half precision, and numbers that are not aligned") {
  const SmallModel model;
  const TempFolder folder;
  for (const char* dtype : {"F16", "BF16"}) {
    std::vector<FileTensor> tensors;
    tensors.push_back({"m.q_proj.lora_A.weight", {3, 4}, dtype, {}});
    tensors.push_back({"m.q_proj.lora_B.weight", {6, 3}, dtype, {}});
    WriteAdapter(folder, "a", AdapterConfigText(3, 6), tensors);
    CHECK(model.Reader().Read("a", folder.PathOf("a")).ok());
  }
  std::string bytes = SafetensorsBytes(GoodTensors());
  // One byte more of header: the data begins at an odd place.
  bytes[0] = static_cast<char>(bytes[0] + 1);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.insert(8 + header - 1, " ");
  folder.Write("odd/adapter_config.json", AdapterConfigText(3, 6));
  folder.Write("odd/adapter_model.safetensors", bytes);
  const auto odd = model.Reader().Read("a", folder.PathOf("odd"));
  INFO(odd.status().ToString());
  CHECK(odd.ok());
}

TEST_CASE("adapter reader: a folder without an adapter is not found") {
  const SmallModel model;
  const TempFolder folder;
  folder.Write("empty/readme", "");
  REQUIRE(mkfifo(folder.PathOf("empty/adapter_config.json").c_str(), 0600) == 0);
  for (const std::string& path : {folder.PathOf("none"), folder.PathOf("empty")}) {
    const auto adapter = model.Reader().Read("x", path);
    CHECK(adapter.status().code() == StatusCode::kNotFound);
    CHECK(adapter.status().message() == "Loading lora x failed: No adapter found for " + path);
  }
}

TEST_CASE("adapter reader: every kind of wrong tensor is refused by name") {
  const SmallModel model;
  const TempFolder folder;
  using Tensors = std::vector<FileTensor>;
  const struct {
    std::string why;
    std::function<void(Tensors&)> spoil;
  } cases[] = {
      {"has no lora_B", [](Tensors& t) { t.erase(t.begin() + 1); }},
      {"has no lora_A", [](Tensors& t) { t.erase(t.begin()); }},
      {"the model has no module m.9.q_proj",
       [](Tensors& t) {
         t[0] = RandomTensor("m.9.q_proj.lora_A.weight", {3, 4}, 1);
       }},
      {"expected target modules in",
       [](Tensors& t) {
         t[0] = RandomTensor("m.extra_proj.lora_A.weight", {3, 4}, 1);
       }},
      {"m.q_proj.weight is unsupported LoRA weight",
       [](Tensors& t) {
         t.push_back(RandomTensor("m.q_proj.weight", {6, 4}, 1));
       }},
      {"m.q_proj.lora_magnitude_vector is unsupported LoRA weight",
       [](Tensors& t) { t.push_back(RandomTensor("m.q_proj.lora_magnitude_vector", {6}, 1)); }},
      {"has shape [3, 5]",
       [](Tensors& t) {
         t[0] = RandomTensor(t[0].name, {3, 5}, 1);
       }},
      {"has shape [5, 3]",
       [](Tensors& t) {
         t[1] = RandomTensor(t[1].name, {5, 3}, 1);
       }},
      {"has shape [2, 4]",  // another rank than the configuration's
       [](Tensors& t) {
         t[0] = RandomTensor(t[0].name, {2, 4}, 1);
         t[1] = RandomTensor(t[1].name, {6, 2}, 1);
       }},
      {"must be a matrix",
       [](Tensors& t) {
         t[0] = RandomTensor(t[0].name, {3, 4, 1}, 1);
       }},
      {"must be a matrix",
       [](Tensors& t) {
         t[0] = RandomTensor(t[0].name, {0, 4}, 1);
       }},
      {"m.q_proj.lora_B has a number that is infinite or none",
       [](Tensors& t) {
         const float nan = std::numeric_limits<float>::quiet_NaN();
         t[1].bytes.replace(t[1].bytes.size() - sizeof nan, sizeof nan,
                            reinterpret_cast<const char*>(&nan), sizeof nan);
       }},
      {"m.q_proj.lora_A has a number that is infinite or none",  // in bfloat16
       [](Tensors& t) {
         t[0] = {t[0].name, {3, 4}, "BF16", std::string(22, '\0') + "\x80\xff"};
       }},
      {"m.q_proj.lora_A has a number that is infinite or none",  // in half precision
       [](Tensors& t) {
         t[0] = {t[0].name, {3, 4}, "F16", std::string(22, '\0') + std::string("\0\x7c", 2)};
       }},
      {"has dtype I16",
       [](Tensors& t) {
         t[0] = {t[0].name, {3, 4}, "I16", {}};
       }},
      {"is an embedding",
       [](Tensors& t) {
         t.push_back(RandomTensor("m.embed_tokens.lora_A.weight", {3, 4}, 1));
         t.push_back(RandomTensor("m.embed_tokens.lora_B.weight", {9, 3}, 1));
       }},
      {"is no embedding",
       [](Tensors& t) {
         t.push_back(RandomTensor("m.k_proj.lora_embedding_A", {3, 4}, 1));
         t.push_back(RandomTensor("m.k_proj.lora_embedding_B", {2, 3}, 1));
       }},
      {"has shape [3, 8]",  // another vocabulary
       [](Tensors& t) {
         t.push_back(RandomTensor("m.embed_tokens.lora_embedding_A", {3, 8}, 1));
         t.push_back(RandomTensor("m.embed_tokens.lora_embedding_B", {4, 3}, 1));
       }},
      {"more than one pair",
       [](Tensors& t) {
         t.push_back(RandomTensor("m.q_proj.lora_A.weight", {3, 4}, 1));
       }},
      {"more than one pair",
       [](Tensors& t) {
         t.push_back(RandomTensor("m.q_proj.lora_embedding_A", {3, 4}, 1));
       }},
      {"has no tensors", [](Tensors& t) { t.clear(); }},
  };
  for (const auto& c : cases) {
    std::vector<FileTensor> tensors = GoodTensors();
    c.spoil(tensors);
    WriteAdapter(folder, "a", AdapterConfigText(3, 6), tensors);
    const auto adapter = model.Reader().Read("a", folder.PathOf("a"));
    CAPTURE(c.why, adapter.status().ToString());
    REQUIRE_FALSE(adapter.ok());
    CHECK(adapter.status().message().find(c.why) != std::string::npos);
  }
}

TEST_CASE("adapter reader: missing, cut and hostile files are refused") {
  const SmallModel model;
  const TempFolder folder;
  const std::string good = SafetensorsBytes(GoodTensors());
  const auto read = [&](const std::string& bytes) {
    folder.Write("a/adapter_config.json", AdapterConfigText(3, 6));
    folder.Write("a/adapter_model.safetensors", bytes);
    return model.Reader().Read("a", folder.PathOf("a"));
  };
  REQUIRE(read(good).ok());
  for (size_t size = 0; size < good.size(); size += 5) CHECK_FALSE(read(good.substr(0, size)).ok());
  CHECK_FALSE(read(std::string(8, '\xff') + good).ok());
  CHECK_FALSE(read(std::string("\x02\0\0\0\0\0\0\0[]", 10)).ok());
  for (const std::string entry :
       {R"({"m.q_proj.lora_A.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,9999999]}})",
        R"({"m.q_proj.lora_A.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[48,0]}})",
        R"({"m.q_proj.lora_A.weight":{"dtype":"F32","shape":[-3,4],"data_offsets":[0,48]}})",
        R"({"m.q_proj.lora_A.weight":{"dtype":"F32","shape":[4611686018427387904,4],
            "data_offsets":[0,0]}})",
        R"({"m.q_proj.lora_A.weight":7})"}) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(entry.size());
    bytes[1] = static_cast<char>(entry.size() >> 8);
    CHECK_FALSE(read(bytes + entry + std::string(48, '\0')).ok());
  }
  const TempFolder other;
  other.Write("a/adapter_config.json", AdapterConfigText(3, 6));
  other.Write("a/adapter_model.bin", "pickle");
  const auto pickle = model.Reader().Read("a", other.PathOf("a"));
  CHECK(pickle.status().message().find("a pickle, is not read") != std::string::npos);
}

TEST_CASE("adapter reader: every byte of the header may be any other") {
  const SmallModel model;
  const TempFolder folder;
  const std::string good = SafetensorsBytes(GoodTensors());
  folder.Write("a/adapter_config.json", AdapterConfigText(3, 6));
  for (size_t i = 0; i < 400; ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    folder.Write("a/adapter_model.safetensors", bytes);
    const auto adapter = model.Reader().Read("a", folder.PathOf("a"));
    if (!adapter.ok()) CHECK_FALSE(adapter.status().message().empty());
  }
}

TEST_CASE("adapter reader: no rank above the limit, and no file that is larger than any adapter") {
  const SmallModel model;
  const TempFolder folder;
  WriteAdapter(folder, "a", AdapterConfigText(3, 6), GoodTensors());
  CHECK_FALSE(model.Reader(/*max_rank=*/2).Read("a", folder.PathOf("a")).ok());
}

TEST_CASE("adapter loader: reads one after another on its own thread, and ends while it reads") {
  const SmallModel model;
  const TempFolder folder;
  WriteAdapter(folder, "a", AdapterConfigText(3, 6), GoodTensors());
  const AdapterReader reader = model.Reader();
  Mailbox<AdapterLoaded> done;
  {
    AdapterLoader loader(&reader, [&](AdapterLoaded loaded) { done.Push(std::move(loaded)); });
    loader.Start({1, "a", folder.PathOf("a")});
    loader.Start({2, "b", folder.PathOf("b")});
    std::vector<AdapterLoaded> all, arrived;
    while (all.size() < 2) {
      done.Wait();
      done.Drain(&arrived);
      std::move(arrived.begin(), arrived.end(), std::back_inserter(all));
    }
    CHECK(all[0].id == 1);
    CHECK(all[0].status.ok());
    CHECK(all[0].weights != nullptr);
    CHECK(all[1].id == 2);
    CHECK(all[1].status.code() == StatusCode::kNotFound);
    for (AdapterId id = 3; id < 100; ++id) loader.Start({id, "a", folder.PathOf("a")});
  }
}

}  // namespace
}  // namespace tandem
