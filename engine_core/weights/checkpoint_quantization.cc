#include "engine_core/weights/checkpoint_quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/read_file.h"
#include "common/strings.h"
#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

Status Unsupported(const std::string& what, const std::string& supported) {
  return UnimplementedError(what + " is not supported; supported: " + supported);
}

// A string of the object, in lower case; "" when it is absent.
StatusOr<std::string> ReadWord(const Json& config, const char* key) {
  std::string word;
  RETURN_IF_ERROR(ReadString(config, key, &word));
  return ToLower(word);
}

// Of an object that gives the sizes of its codes and groups: a scale in f32 and a zero of a byte
// for each group, or for each 128 weights of a larger one. Values that are none are left to those
// that read the tensors.
void ReadLayerBits(const Json& config, const char* bits_key, const char* group_key,
                   CheckpointQuantization* result) {
  const auto integer = [&](const char* key, int64_t fallback) {
    const Json* const value = Find(config, key);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : fallback;
  };
  const int64_t bits = integer(bits_key, 0), group = integer(group_key, 128);
  if (bits < 1 || bits > 8 || group == 0) return;
  const double size = group < 0 || group > 128 ? 128 : static_cast<double>(group);
  result->layer_bits = std::max(result->layer_bits, static_cast<double>(bits) + 40 / size);
}

Status ParseGptq(const Json& config, CheckpointQuantization* result) {
  ASSIGN_OR_RETURN(const std::string format, ReadWord(config, "checkpoint_format"));
  if (!format.empty() && format != "gptq" && format != "gptq_v2") {
    return Unsupported("checkpoint_format " + format, "gptq, gptq_v2");
  }
  bool is_marlin = false;
  RETURN_IF_ERROR(ReadBool(config, "is_marlin_format", &is_marlin));
  if (is_marlin) return Unsupported("is_marlin_format", "checkpoint_format gptq, gptq_v2");
  result->zeros_are_less_one = format != "gptq_v2";
  RETURN_IF_ERROR(ReadBool(config, "desc_act", &result->has_activation_order));
  const Json* const group = Find(config, "group_size");
  if (group != nullptr && group->is_number_integer()) result->group_size = group->get<int64_t>();
  ReadLayerBits(config, "bits", "group_size", result);
  return OkStatus();
}

Status ParseAwq(const Json& config, CheckpointQuantization* result) {
  ASSIGN_OR_RETURN(const std::string version, ReadWord(config, "version"));
  if (!version.empty() && version != "gemm") return Unsupported("version " + version, "gemm");
  ReadLayerBits(config, "bits", "group_size", result);
  ReadLayerBits(config, "w_bit", "q_group_size", result);
  return OkStatus();
}

// Its tensors say the rest. fp4's table stands in the file as nf4's does.
Status ParseBitsandbytes(const Json& config, CheckpointQuantization* result) {
  bool in_8_bits = false;
  RETURN_IF_ERROR(ReadBool(config, "load_in_8bit", &in_8_bits));
  result->has_quantized_activations = in_8_bits;
  result->layer_bits = in_8_bits ? 8 : 4.5;
  return OkStatus();
}

// The rows and columns that share a scale, where the object has the key.
Status ParseBlockSize(const Json& config, const char* key, CheckpointQuantization* result) {
  const Json* block = Find(config, key);
  if (block == nullptr) return OkStatus();
  const bool is_pair = block->is_array() && block->size() == 2 &&
                       std::all_of(block->begin(), block->end(), [](const Json& size) {
                         return size.is_number_unsigned() && size.get<uint64_t>() > 0 &&
                                size.get<uint64_t>() <= 1 << 20;
                       });
  if (!is_pair) return BadValue(key, *block, "two integers in [1, 1048576]");
  result->block_rows = (*block)[0].get<int64_t>();
  result->block_columns = (*block)[1].get<int64_t>();
  return OkStatus();
}

Status ParseFp8(const Json& config, CheckpointQuantization* result) {
  result->has_quantized_activations = true;
  result->layer_bits = 8;
  // AutoRound's word for them.
  const Json* const group = Find(config, "group_size");
  if (group != nullptr && group->is_array()) {
    RETURN_IF_ERROR(ParseBlockSize(config, "group_size", result));
  }
  return ParseBlockSize(config, "weight_block_size", result);
}

// Keys that change what the stored numbers mean, in a way that is not read.
Status RefuseTransforms(const Json& config) {
  const Json* const transform = Find(config, "transform_config");
  if (transform != nullptr && !transform->empty()) {
    return UnimplementedError("transform_config is not supported");
  }
  const Json* const sparsity = Find(config, "sparsity_config");
  if (sparsity == nullptr || sparsity->empty()) return OkStatus();
  // Many files count their zeros there without leaving any out: "dense".
  ASSIGN_OR_RETURN(const std::string format,
                   sparsity->is_object() ? ReadWord(*sparsity, "format") : std::string());
  if (format == "dense") return OkStatus();
  return Unsupported("sparsity_config of format " + (format.empty() ? "(none)" : format), "dense");
}

Status CheckCompressedFormat(const Json& config) {
  static const std::vector<std::string> kFormats = {
      "dense",           "pack-quantized",       "int-quantized",        "float-quantized",
      "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized",
      "mixed-precision"};
  ASSIGN_OR_RETURN(const std::string format, ReadWord(config, "format"));
  if (format.empty() || std::count(kFormats.begin(), kFormats.end(), format) > 0) return OkStatus();
  std::string supported;
  for (const std::string& name : kFormats) supported += (supported.empty() ? "" : ", ") + name;
  return Unsupported("format " + format, supported);
}

Status ParseCompressedTensors(const Json& config, CheckpointQuantization* result) {
  RETURN_IF_ERROR(RefuseTransforms(config));
  RETURN_IF_ERROR(CheckCompressedFormat(config));
  const Json* groups = Find(config, "config_groups");
  if (groups == nullptr) return OkStatus();
  if (!groups->is_object()) return BadValue("config_groups", *groups, "an object");
  int num_asymmetric = 0, num_symmetric = 0;
  for (const auto& [name, group] : groups->items()) {
    Status status = group.is_object() ? CheckCompressedFormat(group)
                                      : InvalidArgumentError("must be an object");
    if (!status.ok()) return status.WithContext(name).WithContext("config_groups");
    if (Find(group, "input_activations") != nullptr) result->has_quantized_activations = true;
    const Json* weights = Find(group, "weights");
    if (weights == nullptr || !weights->is_object()) continue;
    ReadLayerBits(*weights, "num_bits", "group_size", result);
    const Json* symmetric = Find(*weights, "symmetric");
    ++(symmetric != nullptr && *symmetric == false ? num_asymmetric : num_symmetric);
    status = ParseBlockSize(*weights, "block_structure", result);
    if (!status.ok()) return status.WithContext(name).WithContext("config_groups");
  }
  result->has_zeros = num_asymmetric > 0 && num_symmetric == 0;
  return OkStatus();
}

// `config` is the file's object "quantization", or has its keys itself.
Status ParseModelOpt(const Json& config, CheckpointQuantization* result) {
  const Json* nested = Find(config, "quantization");
  const Json& keys = nested != nullptr && nested->is_object() ? *nested : config;
  ASSIGN_OR_RETURN(const std::string algorithm, ReadWord(keys, "quant_algo"));
  struct Algorithm {
    std::string_view name;
    bool is_weight_only;
    double bits;
  };
  // FP8_PB_WO has blocks of 128 x 128, as a CheckpointQuantization has them.
  constexpr Algorithm kAlgorithms[] = {{"FP8", false, 8},
                                       {"FP8_PER_CHANNEL_PER_TOKEN", false, 8},
                                       {"FP8_PB_WO", true, 8},
                                       {"NVFP4", false, 6},
                                       {"W4A16_NVFP4", true, 6},
                                       {"MXFP8", false, 8.25},
                                       {"MIXED_PRECISION", false, 8}};
  std::string supported;
  for (const Algorithm& row : kAlgorithms) {
    if (ToLower(row.name) == algorithm) {
      result->has_quantized_activations = !row.is_weight_only;
      result->layer_bits = row.bits;
      return OkStatus();
    }
    supported += (supported.empty() ? "" : ", ") + std::string(row.name);
  }
  return Unsupported("quant_algo " + (algorithm.empty() ? "(none)" : algorithm), supported);
}

// Which of its schemes a module has is seen in the file; of the config remains what all share.
Status ParseQuark(const Json& config, CheckpointQuantization* result) {
  const Json* const scheme = Find(config, "global_quant_config");
  if (scheme == nullptr) return OkStatus();
  if (!scheme->is_object()) return BadValue("global_quant_config", *scheme, "an object");
  result->has_quantized_activations = Find(*scheme, "input_tensors") != nullptr;
  const Json* const weight = Find(*scheme, "weight");
  if (weight == nullptr || !weight->is_object()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string type, ReadWord(*weight, "dtype"));
  result->layer_bits = type == "fp4" ? 4.25 : 8;
  return ParseBlockSize(*weight, "block_size", result);
}

// gpt-oss's: the experts alone, which are nearly all of the model.
Status ParseMxfp4(const Json&, CheckpointQuantization* result) {
  result->layer_bits = 4.25;
  return OkStatus();
}

constexpr std::string_view kAutoRound = "auto-round";

struct MethodRow {
  QuantizationMethod method;
  std::string_view name;
  std::vector<std::string_view> aliases;                  // of --quantization and of quant_method
  Status (*parse)(const Json&, CheckpointQuantization*);  // null: no config.json names it
};

const std::vector<MethodRow>& Methods() {
  static const std::vector<MethodRow> rows = {
      {QuantizationMethod::kAwq,
       "awq",
       {"auto_awq", "awq_marlin", "marlin", kAutoRound, "inc"},
       ParseAwq},
      {QuantizationMethod::kBitsandbytes, "bitsandbytes", {}, ParseBitsandbytes},
      {QuantizationMethod::kCompressedTensors,
       "compressed-tensors",
       {"compressed_tensors", kAutoRound, "inc"},
       ParseCompressedTensors},
      {QuantizationMethod::kFp8, "fp8", {kAutoRound, "inc"}, ParseFp8},
      {QuantizationMethod::kGguf, "gguf", {}, nullptr},
      {QuantizationMethod::kGptq,
       "gptq",
       {"auto_gptq", "gptq_marlin", "marlin", kAutoRound, "inc"},
       ParseGptq},
      {QuantizationMethod::kModelOpt,
       "modelopt",
       {"modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"},
       ParseModelOpt},
      {QuantizationMethod::kMxfp4, "mxfp4", {"gpt_oss_mxfp4"}, ParseMxfp4},
      // Quark's files have ModelOpt's layouts, and int8.
      {QuantizationMethod::kModelOpt, "quark", {}, ParseQuark},
  };
  return rows;
}

// AutoRound writes the files of other methods, and says whose.
StatusOr<std::string> MethodOfAutoRound(const Json& config) {
  constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"auto_round:auto_gptq", "gptq"},
      {"auto_round:auto_awq", "awq"},
      {"auto_round:fp8", "fp8"},
      {"auto_round:llm_compressor", "compressed-tensors"}};
  ASSIGN_OR_RETURN(std::string format, ReadWord(config, "packing_format"));
  if (format.empty()) {
    ASSIGN_OR_RETURN(const std::string type, ReadWord(config, "data_type"));
    format = "auto_round:" + std::string(type.starts_with("mx_fp") ? "llm_compressor"
                                         : type.starts_with("fp")  ? "fp8"
                                                                   : "auto_gptq");
  }
  std::string supported;
  for (const auto& [name, method] : kFormats) {
    if (format == name) return std::string(method);
    supported += (supported.empty() ? "" : ", ") + std::string(name);
  }
  return Unsupported("quant_method auto-round: packing_format " + format, supported);
}

bool HasName(const MethodRow& row, std::string_view name) {
  return row.name == name || std::count(row.aliases.begin(), row.aliases.end(), name) > 0;
}

StatusOr<CheckpointQuantization> ParseAs(const MethodRow& row, const Json& config) {
  CheckpointQuantization result;
  result.method = row.method;
  const Status status = row.parse(config, &result);
  if (!status.ok()) return status.WithContext("quant_method " + std::string(row.name));
  return result;
}

}  // namespace

std::string_view MethodName(QuantizationMethod method) {
  for (const MethodRow& row : Methods()) {
    if (row.method == method) return row.name;
  }
  return "none";
}

bool IsMethodName(std::string_view name) {
  return std::any_of(Methods().begin(), Methods().end(),
                     [name](const MethodRow& row) { return HasName(row, name); });
}

bool NamesMethod(std::string_view name, QuantizationMethod method) {
  return std::any_of(Methods().begin(), Methods().end(), [=](const MethodRow& row) {
    return row.method == method && HasName(row, name);
  });
}

StatusOr<CheckpointQuantization> ParseQuantization(const Json& config) {
  if (!config.is_object()) return InvalidArgumentError("must be an object");
  ASSIGN_OR_RETURN(std::string method, ReadWord(config, "quant_method"));
  if (method.empty() && Find(config, "quant_algo") != nullptr) method = "modelopt";
  if (method == kAutoRound || method == "inc") {
    ASSIGN_OR_RETURN(method, MethodOfAutoRound(config));
  }
  std::string supported;
  for (const MethodRow& row : Methods()) {
    if (row.parse == nullptr) continue;
    if (row.name == method ||
        (method != "marlin" && std::count(row.aliases.begin(), row.aliases.end(), method) > 0)) {
      return ParseAs(row, config);
    }
    supported += (supported.empty() ? "" : ", ") + std::string(row.name);
  }
  supported += ", auto-round";
  return Unsupported("quant_method " + (method.empty() ? "(none)" : method), supported);
}

StatusOr<CheckpointQuantization> ReadQuantizationFile(const std::string& model_dir) {
  struct File {
    std::string_view name;
    QuantizationMethod method;
  };
  constexpr File kFiles[] = {{"hf_quant_config.json", QuantizationMethod::kModelOpt},
                             {"quantize_config.json", QuantizationMethod::kGptq},
                             {"quant_config.json", QuantizationMethod::kAwq}};
  for (const File& file : kFiles) {
    const std::string path = model_dir + "/" + std::string(file.name);
    ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxJsonFileBytes));
    if (text.empty()) continue;
    const auto json = ParseJsonObject(text);
    if (!json.ok()) return json.status().WithContext(path);
    for (const MethodRow& row : Methods()) {
      if (row.method != file.method) continue;
      auto result = ParseAs(row, *json);
      if (!result.ok()) return result.status().WithContext(path);
      return result;
    }
  }
  return CheckpointQuantization();
}

}  // namespace tandem
