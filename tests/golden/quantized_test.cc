// Checkpoints that come quantized, against what other programs read of the same bytes: each matrix
// as float32 numbers, the logits of whole models, and matrices of odd shapes with all codes.

#include <openssl/sha.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/strings.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/safetensors.h"
#include "engine_core/weights/stored_matrix.h"
#include "gguf/gguf_file.h"
#include "kernels/block_format.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// Those of safetensors.
std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "goldens.json")) {
    if (std::filesystem::exists(folder + "/model.safetensors")) folders.push_back(folder);
  }
  REQUIRE(!folders.empty());
  return folders;
}

std::vector<float> NumbersOf(const MatrixSource& source) {
  std::vector<float> numbers(static_cast<size_t>(source.rows() * source.columns()));
  for (int64_t n = 0; n < source.rows(); ++n) {
    source.Read(n, 0, source.columns(), DType::kF32, numbers.data() + n * source.columns());
  }
  return numbers;
}

std::string Sha256Of(const std::vector<float>& numbers) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(numbers.data()), numbers.size() * sizeof(float),
         digest);
  std::string text;
  for (const unsigned char byte : digest) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  return text;
}

TEST_CASE("quantized checkpoints: every matrix is read to the bit") {
  for (const std::string& folder : Folders()) {
    const auto config = ReadModelConfig(folder);
    REQUIRE(config.ok());
    const auto weights = OpenSafetensors(folder);
    REQUIRE(weights.ok());
    // Codes of e2m1 lose the sign of a zero; NVFP4 has two factors, whose order decides the last
    // bit.
    const bool is_fp4 = folder.find("fp4") != std::string::npos;
    const json recorded = ReadGzipJson(folder + "/dequantized.json");
    for (const json& tensor : recorded["tensors"]) {
      if (tensor["shape"].size() != 2) continue;  // gpt-oss's stacks: by their logits below
      const std::string full_name = tensor["tensor"];
      const std::string name = full_name.substr(0, full_name.rfind(".weight"));
      CAPTURE(folder, name);
      const auto matrix =
          LoadMatrix(**weights, config->quantization,
                     {.name = name, .rows = tensor["shape"][0], .columns = tensor["shape"][1]});
      REQUIRE(matrix.ok());
      const std::vector<float> numbers = NumbersOf(matrix->source());
      if (!is_fp4) {
        CHECK(Sha256Of(numbers) == tensor["sha256"]);
        continue;
      }
      for (size_t i = 0; i < tensor["first"].size(); ++i) {
        CHECK(numbers[i] == Approx(tensor["first"][i].get<float>()).epsilon(1e-6));
        CHECK(numbers[numbers.size() - 8 + i] ==
              Approx(tensor["last"][i].get<float>()).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("quantized checkpoints: logits equal HF's over the same weights") {
  constexpr double kTolerance = 2e-3;
  for (const std::string& folder : Folders()) {
    const GoldenLogits logits(folder);
    const json goldens = ReadGoldens(folder);
    for (const json& prompt : goldens["prompts"]) {
      const int index = prompt["index"];
      CAPTURE(folder, index);
      const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
      const std::vector<float> expected = logits.Get("f32." + std::to_string(index));
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        CAPTURE(DTypeName(dtype));
        const auto backend = MakeTestBackend(false, dtype, 1);
        const auto rows = AllLogits(ReadModelConfig(folder), folder, 256, backend.get(), ids);
        const double tolerance = dtype == DType::kF32
                                     ? kTolerance
                                     : 2 * prompt["bf16_max_abs_diff"].get<double>() + 0.05;
        CHECK(MaxDifference(rows.back(), expected.data()) <= tolerance);
      }
    }
  }
}

std::vector<std::string> GgufFolders() {
  std::vector<std::string> folders;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "goldens.json")) {
    if (std::filesystem::exists(folder + "/model.gguf")) folders.push_back(folder);
  }
  REQUIRE(!folders.empty());
  return folders;
}

// Of a tensor as the file has it.
MatrixSource SourceOf(const GgufTensor& tensor, std::vector<std::byte>* aligned) {
  aligned->assign(tensor.bytes.begin(), tensor.bytes.end());
  const int64_t columns = tensor.shape.back();
  int64_t num_rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) num_rows *= tensor.shape[i];
  const int64_t row_bytes = columns / tensor.type->block_size * tensor.type->block_bytes;
  if (const BlockFormat* const format = FindBlockFormat(tensor.type->name)) {
    return {Tensor(aligned->data(), DType::kI8, {num_rows, row_bytes}), *format};
  }
  const DType dtype = tensor.type->name == "F32"   ? DType::kF32
                      : tensor.type->name == "F16" ? DType::kF16
                                                   : DType::kBf16;
  return Tensor(aligned->data(), dtype, {num_rows, columns});
}

TEST_CASE("GGUF checkpoints: every matrix is read to the bit") {
  for (const std::string& folder : GgufFolders()) {
    const auto file = GgufFile::Open(folder + "/model.gguf");
    REQUIRE(file.ok());
    const json recorded = ReadGzipJson(folder + "/dequantized.json");
    for (const json& wanted : recorded["tensors"]) {
      const std::string name = wanted["tensor"];
      CAPTURE(folder, name);
      const GgufTensor* const tensor = (*file)->Find(name);
      REQUIRE(tensor != nullptr);
      CHECK(json(tensor->shape) == wanted["shape"]);
      std::vector<std::byte> aligned;
      CHECK(Sha256Of(NumbersOf(SourceOf(*tensor, &aligned))) == wanted["sha256"]);
    }
  }
}

TEST_CASE("GGUF checkpoints: logits equal HF's over the same weights") {
  constexpr double kTolerance = 2e-3;
  for (const std::string& folder : GgufFolders()) {
    const std::string file = folder + "/model.gguf";
    const GoldenLogits logits(folder);
    const json goldens = ReadGoldens(folder);
    for (const json& prompt : goldens["prompts"]) {
      const int index = prompt["index"];
      CAPTURE(folder, index);
      const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
      const std::vector<float> expected = logits.Get("f32." + std::to_string(index));
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        CAPTURE(DTypeName(dtype));
        const auto backend = MakeTestBackend(false, dtype, 1);
        const auto rows = AllLogits(ReadModelConfig(file), file, 256, backend.get(), ids);
        const double tolerance = dtype == DType::kF32
                                     ? kTolerance
                                     : 2 * prompt["bf16_max_abs_diff"].get<double>() + 0.05;
        CHECK(MaxDifference(rows.back(), expected.data()) <= tolerance);
      }
    }
  }
}

// Logits of matrices that are kept in their blocks, with activations rounded to int8 in blocks of
// 32: llama.cpp, which rounds them too, is llama_cpp_max_abs_diff away from the same numbers.
TEST_CASE("GGUF checkpoints: logits of stored blocks are as near as llama.cpp's") {
  for (const std::string& folder : GgufFolders()) {
    const std::string file = folder + "/model.gguf";
    const GoldenLogits logits(folder);
    const json goldens = ReadGoldens(folder);
    const bool has_blocks = !folder.ends_with("_f16") && !folder.ends_with("_bf16");
    double worst = 0;
    for (const json& prompt : goldens["prompts"]) {
      const std::vector<float> expected =
          logits.Get("f32." + std::to_string(prompt["index"].get<int>()));
      const auto backend = MakeTestBackend(false, DType::kF32, 1);
      const auto rows =
          AllLogits(ReadModelConfig(file), file, 256, backend.get(),
                    prompt["prompt_ids"].get<std::vector<int32_t>>(), WeightFormatsOf("auto"));
      worst = std::max(worst, MaxDifference(rows.back(), expected.data()));
    }
    const double bound = has_blocks ? 2 * goldens["llama_cpp_max_abs_diff"].get<double>() : 2e-3;
    CAPTURE(folder, worst, bound);
    CHECK(worst <= bound);
    CHECK((worst > 2e-3) == has_blocks);  // else the blocks were not used
  }
}

// Which tensors those are is read from the file, so a name that no loader knows would show here.
TEST_CASE("quantized checkpoints: a loader asks for every tensor of a file") {
  std::vector<std::string> models = Folders();
  for (const std::string& folder : GgufFolders()) models.push_back(folder + "/model.gguf");
  for (const std::string& path : models) {
    const auto config = ReadModelConfig(path);
    REQUIRE(config.ok());
    const auto weights = OpenWeights(path, "auto", *config);
    REQUIRE(weights.ok());
    CHECK(UnusedTensors(**weights, *config).size() > 2);
    const auto backend = MakeTestBackend(false, DType::kBf16, 1);
    const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 1, .max_positions = 8};
    REQUIRE(LoadModel({*config, limits, **weights, *backend, WeightFormatsOf("auto")}).ok());
    CAPTURE(path);
    CHECK(UnusedTensors(**weights, *config) == std::vector<std::string>());
  }
}

// What rounding activations may do to logits here; the checkpoints' own schemes do as much.
TEST_CASE("quantized checkpoints: logits of stored codes are near HF's over the same weights") {
  for (const std::string& folder : Folders()) {
    const GoldenLogits logits(folder);
    const json goldens = ReadGoldens(folder);
    double worst = 0;
    for (const json& prompt : goldens["prompts"]) {
      const std::vector<float> expected =
          logits.Get("f32." + std::to_string(prompt["index"].get<int>()));
      const auto backend = MakeTestBackend(false, DType::kF32, 1);
      const auto rows =
          AllLogits(ReadModelConfig(folder), folder, 256, backend.get(),
                    prompt["prompt_ids"].get<std::vector<int32_t>>(), WeightFormatsOf("auto"));
      worst = std::max(worst, MaxDifference(rows.back(), expected.data()));
    }
    CAPTURE(folder, worst);
    CHECK(worst <= 0.5);
  }
}

// Codes that no integer product takes are made into numbers in each product.
TEST_CASE("quantized checkpoints: FP8, NVFP4 and activation order have the bits of their numbers") {
  int num_folders = 0;
  for (const std::string& folder : Folders()) {
    const auto has = [&](const char* word) { return folder.find(word) != std::string::npos; };
    if (!has("fp8") && !has("nvfp4") && !has("w4_g32_descact")) continue;
    ++num_folders;
    CAPTURE(folder);
    const std::vector<int32_t> prompt = ReadGoldens(folder)["prompts"][0]["prompt_ids"];
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const auto backend = MakeTestBackend(false, dtype, 1);
      const auto logits = [&](WeightFormats formats) {
        return AllLogits(ReadModelConfig(folder), folder, 256, backend.get(), prompt, formats);
      };
      CHECK(logits(WeightFormatsOf("auto")) == logits({}));
    }
  }
  CHECK(num_folders >= 5);
}

// int8 rows with activations in int8 per token are a scheme of compressed-tensors, so its own
// logits are met. Part of the whole set of goldens alone.
TEST_CASE("quantized checkpoints: W8A8 is computed as its scheme says") {
  for (const std::string& folder : Folders()) {
    if (!folder.ends_with("/ct_w8a8_int8")) continue;
    if (!std::filesystem::exists(folder + "/logits_act.safetensors")) continue;
    const GoldenLogits logits(folder, "logits_act.safetensors");
    const json goldens = ReadGzipJson(folder + "/goldens_act.json");
    double jitter = 0;
    for (const json& each : goldens["act_jitter"]) jitter = std::max(jitter, each.get<double>());
    for (const json& prompt : goldens["prompts"]) {
      const int index = prompt["index"];
      const auto backend = MakeTestBackend(false, DType::kF32, 1);
      const auto rows =
          AllLogits(ReadModelConfig(folder), folder, 256, backend.get(),
                    prompt["prompt_ids"].get<std::vector<int32_t>>(), WeightFormatsOf("auto"));
      CAPTURE(index);
      CHECK(MaxDifference(rows.back(), logits.Get("f32." + std::to_string(index)).data()) <=
            std::max(2e-3, 2 * jitter));
    }
  }
}

// Blocks of all bits: whole rows, and parts that begin within a block.
void CheckBlocks(const MatrixSource& source, const float* wanted) {
  const std::vector<float> numbers = NumbersOf(source);
  CHECK(std::equal(numbers.begin(), numbers.end(), wanted));
  const int64_t columns = source.columns();
  const std::vector<float> part =
      NumbersOf(source.Rows(1, source.rows() - 1).Columns(7, columns - 9));
  for (int64_t n = 1; n < source.rows(); ++n) {
    const float* const row = part.data() + (n - 1) * (columns - 9);
    CHECK(std::equal(row, row + columns - 9, wanted + n * columns + 7));
  }
}

TEST_CASE("GGUF units: blocks of all bits") {
  const std::vector<std::string> found =
      GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "units.json");
  REQUIRE(found.size() == 1);
  const TempFolder folder;
  std::filesystem::create_symlink(found[0] + "/units.safetensors",
                                  folder.PathOf("model.safetensors"));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  int num_units = 0;
  const json units = ReadGzipJson(found[0] + "/units.json");
  for (const json& unit : units["cases"]) {
    if (unit["kind"] != "gguf_block") continue;
    const std::string name = unit["name"];
    CAPTURE(name);
    const json &stored = unit["in"]["bytes"][1], &shape = unit["out"]["value"][1];
    const auto bytes = (*weights)->GetStored(name + ".bytes");
    const auto wanted = (*weights)->Get(name + ".value", shape[0], shape[1]);
    REQUIRE(bytes.ok());
    REQUIRE(wanted.ok());
    std::vector<std::byte> copy(bytes->bytes().begin(), bytes->bytes().end());
    const BlockFormat* const format = FindBlockFormat(unit["type"].get<std::string>());
    REQUIRE(format != nullptr);
    CheckBlocks({Tensor(copy.data(), DType::kI8, {stored[0], stored[1]}), *format},
                wanted->view().Data<float>());
    ++num_units;
  }
  CHECK(num_units == 11);
}

// What the gguf package makes of random bytes, for formats that the units lack.
TEST_CASE("GGUF units: IQ4_XS and MXFP4") {
  const json recorded = ReadGzipJson(TANDEM_GOLDEN_DIR "/quantized/units/gguf_blocks.json");
  for (const auto& [name, unit] : recorded.items()) {
    CAPTURE(name);
    std::string bytes = HexDecode(unit["bytes"].get<std::string>()).value();
    const std::string numbers = HexDecode(unit["numbers"].get<std::string>()).value();
    std::vector<float> wanted(numbers.size() / sizeof(float));
    std::memcpy(wanted.data(), numbers.data(), numbers.size());
    const int64_t row_bytes = static_cast<int64_t>(bytes.size()) / 2;
    CheckBlocks({Tensor(bytes.data(), DType::kI8, {2, row_bytes}), *FindBlockFormat(name)},
                wanted.data());
  }
  CHECK(recorded.size() == 2);
}

// From a unit's own keys, in place of config.json.
CheckpointQuantization QuantizationOf(const json& unit) {
  const std::string kind = unit["kind"];
  CheckpointQuantization quantization;
  quantization.method = kind == "gptq"        ? QuantizationMethod::kGptq
                        : kind == "awq"       ? QuantizationMethod::kAwq
                        : kind == "fp8_block" ? QuantizationMethod::kFp8
                        : unit["in"].contains("weight_scale_2")
                            ? QuantizationMethod::kModelOpt
                            : QuantizationMethod::kCompressedTensors;
  quantization.zeros_are_less_one = unit.value("checkpoint_format", "gptq") == "gptq";
  if (unit.contains("block")) {
    quantization.block_rows = unit["block"][0];
    quantization.block_columns = unit["block"][1];
  }
  return quantization;
}

TEST_CASE("quantized units: odd shapes and all codes") {
  const std::vector<std::string> found =
      GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "units.json");
  REQUIRE(found.size() == 1);
  const TempFolder folder;
  std::filesystem::create_symlink(found[0] + "/units.safetensors",
                                  folder.PathOf("model.safetensors"));
  const auto weights = OpenSafetensors(folder.path());
  REQUIRE(weights.ok());
  int num_units = 0;
  const json units = ReadGzipJson(found[0] + "/units.json");
  for (const json& unit : units["cases"]) {
    const std::string kind = unit["kind"], name = unit["name"];
    if (kind == "table" || kind == "act" || kind == "gguf_block") continue;
    CAPTURE(name);
    const json& shape = unit["out"]["dequantized"][1];
    const StoredMatrix stored = {.name = name, .rows = shape[0], .columns = shape[1]};
    const auto matrix = LoadMatrix(**weights, QuantizationOf(unit), stored);
    REQUIRE(matrix.ok());
    const auto expected = (*weights)->Get(name + ".dequantized", stored.rows, stored.columns);
    REQUIRE(expected.ok());
    const std::vector<float> numbers = NumbersOf(matrix->source());
    const float* const wanted = expected->view().Data<float>();
    size_t num_wrong = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool is_equal =
          kind == "nvfp4" ? numbers[i] == Approx(wanted[i]).epsilon(1e-6) : numbers[i] == wanted[i];
      if (!is_equal) ++num_wrong;
    }
    CHECK(num_wrong == 0);
    ++num_units;

    // A part of it is the part of the whole, also where it begins within a group.
    StoredMatrix part = stored;
    part.row_slice = Slice{1, stored.rows - 2};
    part.column_slice = Slice{3, stored.columns - 8};
    const auto loaded_part = LoadMatrix(**weights, QuantizationOf(unit), part);
    REQUIRE(loaded_part.ok());
    const std::vector<float> part_numbers = NumbersOf(loaded_part->source());
    for (int64_t n = 0; n < stored.rows - 2; ++n) {
      const auto whole_row = numbers.begin() + (n + 1) * stored.columns + 3;
      const auto part_row = part_numbers.begin() + n * (stored.columns - 8);
      CHECK(std::equal(part_row, part_row + (stored.columns - 8), whole_row));
    }
  }
  CHECK(num_units == 14);
}

}  // namespace
}  // namespace tandem
