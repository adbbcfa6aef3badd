#pragma once

// What a checkpoint's configuration says about how its matrices are quantized: quantization_config
// of config.json, or one of the files beside it in which older and other tools write the same.
// Values; any thread, pure. Failure: what is not read is refused by name, with what is.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

// kGguf: a GGUF file, whatever its tensors are stored as.
enum class QuantizationMethod {
  kNone,
  kAwq,
  kBitsandbytes,
  kCompressedTensors,
  kFp8,
  kGguf,
  kGptq,
  kModelOpt,
  kMxfp4
};

struct CheckpointQuantization {
  QuantizationMethod method = QuantizationMethod::kNone;
  bool has_quantized_activations = false;  // the scheme rounds them too; ours does not
  // GPTQ: whether a zero is stored less one, as in all but checkpoint_format gptq_v2.
  bool zeros_are_less_one = true;
  // GPTQ (desc_act): groups are not of neighbouring inputs, so each matrix has to list them.
  bool has_activation_order = false;
  // GPTQ: inputs of a group; below 1: not given, or all.
  int64_t group_size = 0;
  // compressed-tensors: no group of the config is symmetric, so integers have zeros.
  bool has_zeros = false;
  // FP8 in blocks: rows and columns that share a scale.
  int64_t block_rows = 128;
  int64_t block_columns = 128;
  // GGUF: how many tensors are stored as what: "25 Q6_K, 169 Q4_K, 97 F32".
  std::string tensor_types = {};
  // Bits per weight of matrices that are kept as they are stored; 0: not known before they are
  // loaded. An estimate, which counts all layers' matrices together, and all tables'.
  double layer_bits = 0;
  double table_bits = 0;  // embedding and lm_head
};

// "gptq"; "none" for kNone.
std::string_view MethodName(QuantizationMethod method);

// Whether --quantization `name` names the method, in one of the spellings that vLLM knows.
bool IsMethodName(std::string_view name);
bool NamesMethod(std::string_view name, QuantizationMethod method);

// The object quantization_config.
StatusOr<CheckpointQuantization> ParseQuantization(const nlohmann::json& config);

// Of a folder whose config.json has none: hf_quant_config.json (ModelOpt), quantize_config.json
// (GPTQ) or quant_config.json (AWQ).
StatusOr<CheckpointQuantization> ReadQuantizationFile(const std::string& model_dir);

}  // namespace tandem
