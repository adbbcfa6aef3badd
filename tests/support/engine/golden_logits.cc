#include "tests/support/engine/golden_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>

#include "engine_core/executor/model_runner.h"
#include "engine_core/weights/open_weights.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/kernels/one_request.h"

#include <catch2/catch.hpp>

namespace tandem {

std::vector<std::string> GoldenModels(const std::string& golden_dir) {
  std::vector<std::string> folders = GoldenFolders(golden_dir, "models", "goldens.json");
  const auto more = WholeGoldens();
  if (!more) return folders;
  std::map<std::string, std::string> by_name;
  for (const std::string& folder : folders) by_name[folder.substr(folder.rfind('/') + 1)] = folder;
  const std::string known = ", " + KnownArchitectures() + ", ";
  for (const auto& entry : std::filesystem::directory_iterator(*more + "/models2")) {
    if (!HasGolden(entry.path().string(), "goldens.json")) continue;
    const std::string architecture = ReadGoldens(entry.path().string())["architecture"];
    if (known.find(", " + architecture + ", ") == std::string::npos) continue;
    by_name[entry.path().filename().string()] = entry.path().string();
  }
  folders.clear();
  for (const auto& [name, folder] : by_name) folders.push_back(folder);
  return folders;
}

nlohmann::json ReadGoldens(const std::string& folder) {
  return ReadGzipJson(folder + "/goldens.json");
}

GoldenLogits::GoldenLogits(const std::string& folder, const std::string& file_name) {
  std::ifstream in(folder + "/" + file_name, std::ios::binary);
  bytes_.assign(std::istreambuf_iterator<char>(in), {});
  REQUIRE(bytes_.size() > 8);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
  header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
  data_begin_ = 8 + header_bytes;
}

std::vector<float> GoldenLogits::Get(const std::string& name) const {
  const size_t begin = header_.at(name).at("data_offsets")[0];
  const size_t end = header_.at(name).at("data_offsets")[1];
  std::vector<float> values((end - begin) / sizeof(float));
  std::memcpy(values.data(), bytes_.data() + data_begin_ + begin, end - begin);
  return values;
}

std::vector<int64_t> GoldenLogits::Shape(const std::string& name) const {
  return header_.at(name).at("shape");
}

std::string GoldenLogits::Bytes(const std::string& name) const {
  const size_t begin = header_.at(name).at("data_offsets")[0];
  const size_t end = header_.at(name).at("data_offsets")[1];
  return bytes_.substr(data_begin_ + begin, end - begin);
}

std::vector<std::vector<float>> AllLogits(const StatusOr<ModelConfig>& config,
                                          const std::string& folder, int64_t max_positions,
                                          Backend* backend, const std::vector<int32_t>& prompt,
                                          WeightFormats formats, KvFormat kv_format,
                                          const AdapterOf& adapter_of) {
  REQUIRE(config.ok());
  const auto weights = OpenWeights(folder, "auto", *config);
  REQUIRE(weights.ok());
  return AllLogits(*config, weights->get(), max_positions, backend, prompt, formats, kv_format,
                   adapter_of);
}

std::vector<std::vector<float>> AllLogits(const ModelConfig& config, Weights* weights,
                                          int64_t max_positions, Backend* backend,
                                          const std::vector<int32_t>& prompt, WeightFormats formats,
                                          KvFormat kv_format, const AdapterOf& adapter_of) {
  const auto count = static_cast<int64_t>(prompt.size());
  const ModelLimits limits = {
      .max_tokens = count, .max_logits_rows = count, .max_positions = max_positions};
  AdapterSites sites;
  LoadContext context = {config, limits, *weights, *backend, formats};
  context.kv_format = kv_format;
  if (adapter_of) context.adapter_sites = &sites;
  const auto loaded = LoadModel(context);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  std::vector<SharedAdapter> adapters;
  if (adapter_of) adapters.push_back(adapter_of(sites, *backend));
  std::vector<int32_t> slots(prompt.size(), 0);
  const StepAdapters step_adapters = {Tensor(slots.data(), DType::kI32, {count}), adapters};
  constexpr int kBlockSize = 32;
  const auto num_blocks = static_cast<int32_t>((count + kBlockSize - 1) / kBlockSize);
  const auto cache =
      backend->AllocateKvCache(KvSpecOf(config, kBlockSize, num_blocks + 1, kv_format));
  REQUIRE(cache.ok());

  std::vector<int32_t> ids = prompt, blocks;
  for (int32_t b = 0; b < num_blocks; ++b) blocks.push_back(num_blocks - b);  // descending
  const OneRequest request(static_cast<int32_t>(count), kBlockSize, blocks, &backend->device());
  const OwnedTensor token_ids =
      backend->device().Upload(Tensor(ids.data(), DType::kI32, {count}), DType::kI32).value();
  const auto plan = backend->MakeAttentionPlan(AttentionShapeOf(config), count, 1).value();
  plan->Fill(request.batch());
  (*loaded)->Forward({.token_ids = token_ids,
                      .plan = plan.get(),
                      .kv_cache = cache->get(),
                      .adapters = adapter_of ? &step_adapters : nullptr});
  auto logits = backend->device().Allocate(DType::kF32, {count, config.vocab_size});
  REQUIRE(logits.ok());
  (*loaded)->Logits(*logits, request.batch().positions);
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<float>& row = rows.emplace_back(static_cast<size_t>(config.vocab_size));
    backend->device().CopyOut(Tensor(row.data(), DType::kF32, {1, config.vocab_size}),
                              logits->view().Rows(i, 1));
  }
  return rows;
}

double MaxDifference(const std::vector<float>& a, const float* b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace tandem
