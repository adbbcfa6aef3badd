// Folders of packed matrices: a model that starts from one gives the bits of the model that was
// packed, whatever its file and its formats.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "common/mapped_file.h"
#include "engine_core/models/pack_model.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/packed_file.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

const std::vector<int32_t> kPrompt = {5, 17, 3, 60, 41, 7, 7, 22, 9, 30};

// Packs the model with a backend of its own and compares all logits.
void CheckSameBits(const std::string& model, const std::string& quantization, DType dtype) {
  CAPTURE(model, quantization, DTypeName(dtype));
  const TempFolder folder;
  const std::string out = folder.PathOf("out");
  const auto config = ReadModelConfig(model);
  REQUIRE(config.ok());
  const WeightFormats formats = WeightFormatsOf(quantization);
  const auto backend = MakeTestBackend(false, dtype, 1);
  const auto packed =
      PackModel({.model = model, .out = out, .quantization = quantization, .formats = formats},
                *config, backend.get());
  REQUIRE(packed.status() == OkStatus());
  const auto want = AllLogits(config, model, 64, backend.get(), kPrompt, formats);
  const auto have = AllLogits(ReadModelConfig(out), out, 64, backend.get(), kPrompt, formats);
  CHECK(have == want);
}

// Those that have weights; of a folder of one, its GGUF file.
std::vector<std::string> WithWeights(const std::vector<std::string>& folders) {
  std::vector<std::string> models;
  for (const std::string& folder : folders) {
    const std::string gguf = folder + "/model.gguf";
    if (fs::exists(gguf)) {
      models.push_back(gguf);
    } else if (fs::exists(folder + "/model.safetensors") ||
               fs::exists(folder + "/model.safetensors.index.json")) {
      models.push_back(folder);
    }
  }
  REQUIRE(!models.empty());
  return models;
}

TEST_CASE("packed models: quantized checkpoints keep their bits") {
  for (const std::string& model :
       WithWeights(GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "goldens.json"))) {
    CheckSameBits(model, "auto", DType::kBf16);
  }
}

TEST_CASE("packed models: every architecture keeps its bits in every format") {
  size_t i = 0;
  const std::vector<std::string> formats = {"none", "int8", "int4", "int4-g128"};
  for (const std::string& model : WithWeights(GoldenModels(TANDEM_GOLDEN_DIR))) {
    CheckSameBits(model, "none", DType::kF32);
    CheckSameBits(model, formats[i++ % formats.size()], DType::kBf16);
  }
}

// A packed folder of the smallest kind, for the refusals below.
struct PackedLlama {
  PackedLlama() {
    const std::string from = std::string(TANDEM_GOLDEN_DIR) + "/models/llama_plain";
    fs::copy(from, source.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const auto config = ReadModelConfig(source.path());
    REQUIRE(config.ok());
    const auto backend = MakeTestBackend(false, DType::kBf16, 1);
    const auto packed = PackModel({.model = source.path(), .out = out()}, *config, backend.get());
    REQUIRE(packed.status() == OkStatus());
  }
  std::string out() const { return folder.PathOf("out"); }
  Status Open() const {
    const auto config = ReadModelConfig(out());
    if (!config.ok()) return config.status();
    return OpenWeights(out(), "auto", *config).status();
  }
  Status Load(WeightFormats formats, DType dtype) const {
    const auto config = ReadModelConfig(out());
    auto weights = OpenWeights(out(), "auto", *config);
    REQUIRE(weights.ok());
    const auto backend = MakeTestBackend(false, dtype, 1);
    const ModelLimits limits = {.max_tokens = 1, .max_logits_rows = 1, .max_positions = 2};
    return LoadModel({*config, limits, **weights, *backend, formats}).status();
  }

  TempFolder source, folder;
};

using Catch::Matchers::Contains;

TEST_CASE("packed models: a folder of one has what else is read, and no weights") {
  const PackedLlama packed;
  CHECK(fs::exists(packed.out() + "/config.json"));
  CHECK(!fs::exists(packed.out() + "/model.safetensors"));
  CHECK(packed.Open() == OkStatus());
}

TEST_CASE("packed models: what has changed since is refused") {
  const PackedLlama packed;
  const std::string weights = packed.source.PathOf("model.safetensors");
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(1));
  CHECK_THAT(packed.Open().message(), Contains("has changed since"));
  // Without the model there is nothing to compare with.
  fs::remove_all(packed.source.path());
  CHECK(packed.Open() == OkStatus());
}

TEST_CASE("packed models: another format or type is refused") {
  const PackedLlama packed;
  CHECK(packed.Load({}, DType::kBf16) == OkStatus());
  CHECK_THAT(packed.Load(WeightFormatsOf("int8"), DType::kBf16).message(),
             Contains("pack it again"));
  CHECK_THAT(packed.Load({}, DType::kF32).message(), Contains("pack it again"));
}

TEST_CASE("packed models: --load-format and a second packing are refused") {
  const PackedLlama packed;
  const auto config = ReadModelConfig(packed.out());
  REQUIRE(config.ok());
  CHECK_THAT(OpenWeights(packed.out(), "safetensors", *config).status().message(),
             Contains("folder of packed matrices"));
  const auto backend = MakeTestBackend(false, DType::kBf16, 1);
  CHECK_THAT(PackModel({.model = packed.out(), .out = packed.folder.PathOf("other")}, *config,
                       backend.get())
                 .status()
                 .message(),
             Contains("is packed already"));
  CHECK_THAT(PackModel({.model = packed.source.path(), .out = packed.out()}, *config, backend.get())
                 .status()
                 .message(),
             Contains("is there already"));
}

// Bytes of the file, changed.
void Rewrite(const std::string& path, const std::function<void(std::string*)>& change) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  in.close();
  change(&bytes);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("packed models: a flipped bit of any part is found, and the file is refused then") {
  const PackedLlama packed;
  const std::string path = PackedPath(packed.out());
  const std::atomic<bool> goes_on = false;
  const auto check = [&] { return PackedFile::Open(path).value()->parts().Check(goes_on); };
  CHECK(check() == OkStatus());
  const auto header = [&] {
    const auto file = MappedFile::Open(path);
    return ParsePackedHeader(file->bytes()).value();
  }();
  // Panels and scales of each matrix, and vectors.
  REQUIRE(header.parts.size() > header.matrices.size());
  for (const PackedHeader::Part& part : header.parts) {
    for (const int64_t at : {part.at, part.at + part.size - 1}) {
      CAPTURE(at);
      const auto flip = [&](std::string* bytes) { (*bytes)[static_cast<size_t>(at)] ^= 4; };
      Rewrite(path, flip);
      CHECK(packed.Open() == OkStatus());  // which reads none of it
      CHECK_THAT(check().message(), Contains("the " + std::to_string(part.size) + " bytes at " +
                                             std::to_string(part.at) + " do not have their hash"));
      Rewrite(path, flip);
    }
  }
  CHECK(check() == OkStatus());
  const std::atomic<bool> ends = true;
  const PackedParts parts = PackedFile::Open(path).value()->parts();
  CHECK(parts.Check(ends).code() == StatusCode::kCancelled);

  parts.MarkDamaged();
  CHECK_THAT(packed.Open().message(), Contains("did not have their hashes"));
  // Another file in its place is not marked, and not by those who have the old one either.
  fs::copy_file(path, path + ".copy");
  fs::rename(path + ".copy", path);
  CHECK(packed.Open() == OkStatus());
  parts.MarkDamaged();
  CHECK(packed.Open() == OkStatus());
}

TEST_CASE("packed models: foreign, cut and damaged files are refused") {
  const PackedLlama packed;
  const std::string path = PackedPath(packed.out());
  const auto refusal = [&](const std::function<void(std::string*)>& change) {
    const std::string copy = path + ".copy";
    fs::copy_file(path, copy);
    Rewrite(path, change);
    const Status status = packed.Open();
    fs::rename(copy, path);
    return status.message();
  };
  // In the header, with the hash that it then has.
  const auto changed_header = [&](const std::string& from, const std::string& to) {
    return refusal([&](std::string* bytes) {
      const size_t at = bytes->rfind(R"({"dtype":)");
      REQUIRE(at != std::string::npos);
      std::string json = bytes->substr(at);
      const size_t place = json.find(from);
      REQUIRE(place != std::string::npos);
      json.replace(place, from.size(), to);
      *bytes = FirstPage(static_cast<int64_t>(at), json) +
               bytes->substr(static_cast<size_t>(kPackedPage), at - kPackedPage) + json;
    });
  };
  CHECK_THAT(refusal([](std::string* bytes) { bytes->pop_back(); }), Contains("truncated"));
  CHECK_THAT(refusal([](std::string* bytes) { bytes->back() ^= 1; }), Contains("hash"));
  CHECK_THAT(refusal([](std::string* bytes) { bytes->resize(100); }), Contains("cut off"));
  CHECK_THAT(refusal([](std::string* bytes) { (*bytes)[0] = 0; }), Contains("no file of packed"));
  CHECK_THAT(changed_header(std::string(PanelKind()), "vax panels 1"), Contains("vax panels"));
  CHECK_THAT(changed_header(R"("version":1)", R"("version":2)"), Contains("version 2"));
  CHECK_THAT(changed_header(R"("at":4096,)", R"("at":4097,)"), Contains("are not pages"));
  CHECK_THAT(changed_header(R"("at":4096,)", R"("at":1152921504606842880,)"),
             Contains("are not pages"));
  CHECK_THAT(changed_header(R"("format":"compute")", R"("format":"int9")"), Contains("int9"));
  CHECK_THAT(changed_header(R"("n":)", R"("n":9)"), Contains("are not pages"));
  CHECK_THAT(changed_header(R"("parts":[[4096,)", R"("parts":[[4097,)"), Contains("are not pages"));
  CHECK_THAT(changed_header(R"("parts":[[4096,)", R"("parts":[[4096,-1,)"), Contains("parts"));
  CHECK(packed.Open() == OkStatus());
}

}  // namespace
}  // namespace tandem
