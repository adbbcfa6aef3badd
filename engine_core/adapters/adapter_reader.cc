#include "engine_core/adapters/adapter_reader.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/read_file.h"
#include "common/shape_text.h"
#include "engine_core/adapters/adapter_config.h"
#include "engine_core/adapters/adapter_tensor.h"
#include "engine_core/adapters/expert_stack.h"
#include "engine_core/weights/nested_weights.h"
#include "engine_core/weights/safetensors_header.h"

namespace tandem {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr std::string_view kPrefix = "base_model.model.";

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);  // not a pipe, which could block
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// exponent: its bits in a number, which are all set in a NaN and in an infinity.
template <class Word>
bool HasNonFinite(const Tensor& x, Word exponent) {
  const auto* words = static_cast<const Word*>(x.data);
  Word found = 0;
  for (int64_t i = 0; i < x.shape[0] * x.shape[1]; ++i) {
    found |= static_cast<Word>((words[i] & exponent) == exponent);
  }
  return found != 0;
}

bool IsFinite(const Tensor& x) {
  if (x.dtype == DType::kF32) return !HasNonFinite<uint32_t>(x, 0x7f800000);
  return !HasNonFinite<uint16_t>(x, x.dtype == DType::kBf16 ? 0x7f80 : 0x7c00);
}

// Which half of a module's pair a tensor is.
struct TensorKind {
  std::string_view module;
  bool is_b = false;
  bool is_embedding = false;
  std::string parameter = {};  // that a stack changes
};
StatusOr<TensorKind> KindOf(std::string_view name) {
  constexpr struct {
    std::string_view suffix;
    bool is_b, is_embedding;
  } kKinds[] = {{".lora_A.weight", false, false},
                {".lora_B.weight", true, false},
                {".lora_embedding_A", false, true},
                {".lora_embedding_B", true, true}};
  for (const auto& kind : kKinds) {
    if (!name.ends_with(kind.suffix)) continue;
    return TensorKind{.module = name.substr(0, name.size() - kind.suffix.size()),
                      .is_b = kind.is_b,
                      .is_embedding = kind.is_embedding};
  }
  return InvalidArgumentError(std::string(name) + " is unsupported LoRA weight");
}

// PEFT's copy of what an adapter of the embedding or of the head was trained beside.
bool IsBaseLayer(std::string_view name) {
  for (const std::string_view suffix : {".base_layer.weight", ".base_layer.bias"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view module = LastPart(name.substr(0, name.size() - suffix.size()));
    return module == "embed_tokens" || module == "lm_head";
  }
  return false;
}

// Zeros for what the file does not have.
StackShape StackShapeOf(const SafetensorsHeader& header, const std::string& module) {
  StackShape pair;
  const auto a = header.entries.find(module + ".lora_A.weight");
  const auto b = header.entries.find(module + ".lora_B.weight");
  if (a != header.entries.end() && a->second.shape.size() == 2) pair.columns = a->second.shape[1];
  if (b != header.entries.end() && b->second.shape.size() == 2) pair.rows = b->second.shape[0];
  return pair;
}

}  // namespace

// What the file has of one module.
struct AdapterReader::Tensors {
  std::string path;       // the module's name in the file, which patterns are about
  std::string parameter;  // of a stack, whose patterns are about what it changes
  std::optional<AdapterTensor> a, b;
  bool is_embedding = false;
  float scale = 1;

  Status Put(const std::string& module, const TensorKind& kind, AdapterTensor tensor);
  // Sets the scale of what fits.
  Status Check(const AdaptableModule& module, const AdapterConfig& config);
};

Status AdapterReader::Tensors::Put(const std::string& module, const TensorKind& kind,
                                   AdapterTensor tensor) {
  std::optional<AdapterTensor>& half = kind.is_b ? b : a;
  if (half || ((a || b) && is_embedding != kind.is_embedding)) {
    return InvalidArgumentError(module + " has more than one pair");
  }
  path = kind.module;
  parameter = kind.parameter;
  half = std::move(tensor);
  is_embedding = kind.is_embedding;
  return OkStatus();
}

Status AdapterReader::Tensors::Check(const AdaptableModule& module, const AdapterConfig& config) {
  const char* const first = is_embedding ? "lora_embedding_A" : "lora_A";
  const char* const second = is_embedding ? "lora_embedding_B" : "lora_B";
  if (!a || !b) {
    return InvalidArgumentError(path + " has no " + (a ? second : first) + " beside its " +
                                (a ? first : second));
  }
  if (is_embedding != module.is_embedding) {
    return InvalidArgumentError(path + (module.is_embedding
                                            ? " is an embedding: it needs lora_embedding_A and _B"
                                            : " is no embedding: it needs lora_A and lora_B"));
  }
  ASSIGN_OR_RETURN(const AdapterScaling scaling,
                   config.ScalingOf(parameter.empty() ? path : parameter));
  scale = scaling.scale;
  const int64_t rank = scaling.rank;
  // [r, columns] and [rows, r]; the rows of an embedding are ids, and what it adds are columns.
  const int64_t k = is_embedding ? module.rows : module.columns;
  const int64_t n = is_embedding ? module.columns : module.rows;
  const auto check = [&](const char* half, const Tensor& x, int64_t rows, int64_t columns) {
    if (x.shape[0] == rows && x.shape[1] == columns) {
      if (IsFinite(x)) return OkStatus();
      return InvalidArgumentError(path + "." + half + " has a number that is infinite or none");
    }
    const std::vector<int64_t> got = {x.shape[0], x.shape[1]}, wanted = {rows, columns};
    return InvalidArgumentError(path + "." + half + " has shape " + ShapeText(got) +
                                ", the model and the rank " + std::to_string(rank) + " need " +
                                ShapeText(wanted));
  };
  RETURN_IF_ERROR(check(first, a->view(), rank, k));
  return check(second, b->view(), n, rank);
}

AdapterReader::AdapterReader(const AdapterSites* sites, const Backend* backend, int64_t max_rank)
    : sites_(sites), backend_(backend), max_rank_(max_rank) {
  AddModules(ModulesOf(*sites));
}

void AdapterReader::AddModules(const AdaptableModules& modules) {
  for (const auto& [name, module] : modules) {
    modules_[name] = module;
    kinds_.emplace(LastPart(name));
  }
}

StatusOr<ReadAdapter> AdapterReader::Read(const std::string& name, const std::string& folder,
                                          int64_t number) const {
  if (!IsFile(folder + "/adapter_config.json")) {
    return NotFoundError("Loading lora " + name + " failed: No adapter found for " + folder);
  }
  return ReadFiles(folder, number);
}

int64_t AdapterReader::max_adapter_bytes() const {
  int64_t numbers = 0;
  for (const auto& [name, module] : modules_) numbers += module.rows + module.columns;
  return numbers * max_rank_ * SizeOf(backend_->activation_dtype());
}

// More than an adapter of the largest rank needs in float64, and copies of embedding and head.
int64_t AdapterReader::MaxFileBytes() const {
  int64_t numbers = 0;
  for (const auto& [name, module] : modules_) {
    numbers += max_rank_ * (module.rows + module.columns);
    if (LastPart(name) == "embed_tokens" || LastPart(name) == "lm_head") {
      numbers += module.rows * module.columns;
    }
  }
  constexpr int64_t kHeader = 64 << 20;
  return kHeader + numbers * static_cast<int64_t>(sizeof(double));
}

StatusOr<ReadAdapter> AdapterReader::ReadFiles(const std::string& folder, int64_t number) const {
  ASSIGN_OR_RETURN(const std::string config_text,
                   ReadFile(folder + "/adapter_config.json", kMaxConfigBytes));
  const StatusOr<AdapterConfig> config = AdapterConfig::Parse(config_text, max_rank_);
  if (!config.ok()) return config.status().WithContext("adapter_config.json");
  const std::string path = folder + "/adapter_model.safetensors";
  if (!IsFile(path)) {
    return InvalidArgumentError(
        folder + " doesn't contain tensors: adapter_model.safetensors is missing" +
        (IsFile(folder + "/adapter_model.bin") ? ", and adapter_model.bin, a pickle, is not read"
                                               : ""));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, MaxFileBytes()));
  const std::span<const std::byte> file = std::as_bytes(std::span(text));
  const StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(file);
  if (!header.ok()) return header.status().WithContext("adapter_model.safetensors");

  std::map<std::string, Tensors, std::less<>> modules;
  for (const auto& [full_name, entry] : header->entries) {
    std::string_view name = full_name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (IsBaseLayer(name)) continue;
    ASSIGN_OR_RETURN(TensorKind kind, KindOf(name));
    const std::string prefix = full_name.substr(0, full_name.size() - name.size());
    const std::optional<ExpertStack> stack = FindExpertStack(
        modules_, kind.module, StackShapeOf(*header, prefix + std::string(kind.module)));
    const std::optional<std::string> known = KnownName(kind.module);
    if (!known && !stack) return UnknownModule(kind.module);
    ASSIGN_OR_RETURN(AdapterTensor tensor,
                     AdapterTensor::Open(std::string(name), entry, header->DataOf(entry, file)));
    if (known) {
      RETURN_IF_ERROR(modules[*known].Put(*known, kind, std::move(tensor)));
      continue;
    }
    kind.parameter = stack->parameter;
    ASSIGN_OR_RETURN(std::vector<ExpertPart> parts,
                     SplitStack(*stack, std::string(name), tensor.view(), kind.is_b));
    for (ExpertPart& part : parts) {
      RETURN_IF_ERROR(modules[part.module].Put(part.module, kind, std::move(part.tensor)));
    }
  }
  if (modules.empty()) return InvalidArgumentError(path + " has no tensors of an adapter");
  for (auto& [name, tensors] : modules) {
    RETURN_IF_ERROR(tensors.Check(modules_.find(name)->second, *config));
  }
  ReadAdapter result;
  result.warning = config->warning();
  ASSIGN_OR_RETURN(result.weights, Pack(modules, number));
  const XXH64_hash_t seed = XXH3_64bits(config_text.data(), config_text.size());
  result.digest = XXH3_64bits_withSeed(text.data(), text.size(), seed);
  return result;
}

// A module is saved by its name in the class that was trained, which may hold the text model
// beside others or without its head. GPT-2's first files lack what that class calls the model, and
// transformers 5 has names of its own for Mixtral's blocks and Nemotron-H's backbone.
std::optional<std::string> AdapterReader::KnownName(std::string_view module) const {
  constexpr std::string_view kGpt2 = "transformer.", kModel = "model.", kMlp = ".mlp.";
  if (modules_.contains(module)) return std::string(module);
  std::string name = TextName(module);
  if (modules_.contains(name)) return name;
  if (module.starts_with(kModel)) {
    std::string of_backbone = "backbone." + std::string(module.substr(kModel.size()));
    if (modules_.contains(of_backbone)) return of_backbone;
  }
  if (const size_t mlp = name.find(kMlp); mlp != std::string::npos) {
    name.replace(mlp, kMlp.size(), ".block_sparse_moe.");
    if (modules_.contains(name)) return name;
  }
  if (module.starts_with(kGpt2)) module.remove_prefix(kGpt2.size());
  return modules_.contains(module) ? std::optional(std::string(module)) : std::nullopt;
}

Status AdapterReader::UnknownModule(std::string_view module) const {
  const std::string name(module);
  if (kinds_.contains(std::string(LastPart(module)))) {
    return InvalidArgumentError("the model has no module " + name);
  }
  std::string known;
  for (const std::string& kind : kinds_) known += (known.empty() ? "" : ", ") + kind;
  return InvalidArgumentError("expected target modules in {" + known + "} but received [" + name +
                              "]");
}

StatusOr<SharedAdapter> AdapterReader::Pack(
    const std::map<std::string, Tensors, std::less<>>& modules, int64_t number) const {
  std::vector<std::unique_ptr<PackedPair>> pairs;
  for (const AdapterSite& site : sites_->all()) {
    std::unique_ptr<PackedPair>& pair = pairs.emplace_back();
    std::vector<PairSource> sources;
    for (const AdapterSite::Part& part : site.parts) {
      const auto found = modules.find(part.module);
      if (found == modules.end()) continue;
      const Tensors& tensors = found->second;
      const Tensor &a = tensors.a->view(), &b = tensors.b->view();
      // The rows of an embedding are A's columns.
      sources.push_back({.a = site.is_embedding ? a.Columns(part.first, part.num_rows) : a,
                         .b = site.is_embedding ? b : b.Rows(part.first, part.num_rows),
                         .scale = tensors.scale,
                         .begin = part.begin});
    }
    if (sources.empty()) continue;
    if (site.is_embedding) {
      ASSIGN_OR_RETURN(pair, backend_->PackEmbeddingPair(sources[0]));
    } else {
      ASSIGN_OR_RETURN(pair, backend_->PackPair(sources, site.matrix));
    }
  }
  return SharedAdapter(std::make_shared<const AdapterWeights>(std::move(pairs), number));
}

}  // namespace tandem
