#include "engine_core/weights/rope_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr uint64_t kMaxSection = 4096;
constexpr const char* kLocalTheta = "rope_local_base_freq";
// The two kinds of layers, of which the second has a window.
constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

struct RopeTypeRow {
  std::string_view name;
  RopeType type;
};
constexpr RopeTypeRow kRopeTypes[] = {
    {"default", RopeType::kDefault},
    {"dynamic", RopeType::kDynamic},
    {"linear", RopeType::kLinear},
    {"llama3", RopeType::kLlama3},
    {"longrope", RopeType::kLongRope},
    {"mrope", RopeType::kDefault},
    {"proportional", RopeType::kProportional},
    {"su", RopeType::kLongRope},  // longrope's first name
    {"yarn", RopeType::kYarn},
};

StatusOr<RopeType> ParseRopeType(std::string_view name) {
  std::string known;
  for (const RopeTypeRow& row : kRopeTypes) {
    if (row.name == name) return row.type;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgumentError("rope type " + std::string(name) + " is not known, must be one of " +
                              known);
}

// YaRN scales attention by 0.1 m ln(factor) + 1.
double YarnScale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// A 0 is as good as none.
Status ReadMscale(const Json& json, const char* key, double* out) {
  const Json* value = Find(json, key);
  return value != nullptr && *value == 0 ? OkStatus() : ReadPositive(json, key, out);
}

Status ReadYarn(const Json& json, RopeConfig* rope) {
  RETURN_IF_ERROR(ReadPositive(json, "beta_fast", &rope->beta_fast));
  RETURN_IF_ERROR(ReadPositive(json, "beta_slow", &rope->beta_slow));
  RETURN_IF_ERROR(ReadBool(json, "truncate", &rope->truncate));
  double mscale = 0, mscale_all_dim = 0;
  RETURN_IF_ERROR(ReadMscale(json, "mscale", &mscale));
  RETURN_IF_ERROR(ReadMscale(json, "mscale_all_dim", &mscale_all_dim));
  rope->attention_factor =
      mscale > 0 && mscale_all_dim > 0
          ? YarnScale(rope->factor, mscale) / YarnScale(rope->factor, mscale_all_dim)
          : YarnScale(rope->factor, 1);
  if (mscale_all_dim > 0) {
    rope->softmax_factor = std::pow(YarnScale(rope->factor, mscale_all_dim), 2);
  }
  return ReadPositive(json, "attention_factor", &rope->attention_factor);
}

Status ReadLlama3(const Json& json, RopeConfig* rope) {
  RETURN_IF_ERROR(ReadPositive(json, "low_freq_factor", &rope->low_freq_factor));
  RETURN_IF_ERROR(ReadPositive(json, "high_freq_factor", &rope->high_freq_factor));
  if (rope->high_freq_factor < rope->low_freq_factor) {
    return InvalidArgumentError("high_freq_factor must not be below low_freq_factor");
  }
  return OkStatus();
}

// The factor defaults to the ratio of the extended context to the original.
Status ReadLongRope(const Json& json, int64_t max_position_embeddings, RopeConfig* rope) {
  for (const auto& [key, list] : {std::pair{"short_factor", &rope->short_factor},
                                  std::pair{"long_factor", &rope->long_factor}}) {
    if (Find(json, key) == nullptr) return InvalidArgumentError(std::string(key) + " is missing");
    RETURN_IF_ERROR(ReadPositives(json, key, list));
  }
  const auto original = static_cast<double>(rope->original_max_position_embeddings);
  rope->factor = static_cast<double>(max_position_embeddings) / original;
  RETURN_IF_ERROR(ReadPositive(json, "factor", &rope->factor));
  if (rope->factor > 1 && original > 1) {
    rope->attention_factor = std::sqrt(1 + std::log(rope->factor) / std::log(original));
  }
  RETURN_IF_ERROR(ReadPositive(json, "attention_factor", &rope->attention_factor));
  for (const auto& [key, factor] : {std::pair{"short_mscale", &rope->short_attention_factor},
                                    std::pair{"long_mscale", &rope->long_attention_factor}}) {
    if (Find(json, key) == nullptr) continue;
    RETURN_IF_ERROR(ReadPositive(json, key, &factor->emplace()));
  }
  return OkStatus();
}

Status ReadSections(const Json& json, RopeConfig* rope) {
  const Json* list = Find(json, "mrope_section");
  if (list == nullptr) return OkStatus();
  const auto is_count = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= kMaxSection;
  };
  if (!list->is_array() || list->size() != 3 ||
      !std::all_of(list->begin(), list->end(), is_count)) {
    return BadValue("mrope_section", *list, "three numbers of pairs");
  }
  rope->sections = list->get<std::vector<int64_t>>();
  return ReadBool(json, "mrope_interleaved", &rope->has_interleaved_sections);
}

// `json` is rope_parameters, its object for one layer type, or rope_scaling; `top` is the whole
// config.
Status ReadScaling(const Json& json, const Json& top, int64_t head_dim,
                   int64_t max_position_embeddings, RopeConfig* rope) {
  if (!json.is_object()) return InvalidArgumentError("is not an object");
  std::string type = "default";
  RETURN_IF_ERROR(ReadString(json, "type", &type));  // the oldest spelling
  RETURN_IF_ERROR(ReadString(json, "rope_type", &type));
  ASSIGN_OR_RETURN(rope->type, ParseRopeType(type));
  // Phi-3's first configs call longrope yarn.
  if (rope->type == RopeType::kYarn && Find(json, "long_factor") != nullptr) {
    rope->type = RopeType::kLongRope;
  }
  RETURN_IF_ERROR(ReadPositive(json, "rope_theta", &rope->theta));
  RETURN_IF_ERROR(ReadSections(json, rope));
  RETURN_IF_ERROR(ReadPositive(json, "llama_4_scaling_beta", &rope->llama_4_scaling_beta));
  double alpha = 0;
  RETURN_IF_ERROR(ReadPositive(json, "alpha", &alpha));
  if (rope->type == RopeType::kDynamic && alpha > 0) {  // Hunyuan's: one base for all lengths
    const auto dim = static_cast<double>(head_dim);
    rope->theta *= std::pow(alpha, dim / (dim - 2));
    rope->type = RopeType::kDefault;
  }
  if (rope->type == RopeType::kDefault || rope->type == RopeType::kDynamic) return OkStatus();

  if (rope->type == RopeType::kProportional) {
    RETURN_IF_ERROR(ReadPositive(json, "factor", &rope->factor));
    return ReadPositive(json, "partial_rotary_factor", &rope->turning_part);
  }

  RETURN_IF_ERROR(ReadSize(json, "original_max_position_embeddings", kMaxPositions,
                           max_position_embeddings, &rope->original_max_position_embeddings));
  if (rope->type == RopeType::kLongRope) {
    RETURN_IF_ERROR(ReadSize(top, "original_max_position_embeddings", kMaxPositions,
                             rope->original_max_position_embeddings,
                             &rope->original_max_position_embeddings));
    return ReadLongRope(json, max_position_embeddings, rope);
  }
  if (Find(json, "factor") == nullptr) return InvalidArgumentError("factor is missing");
  RETURN_IF_ERROR(ReadPositive(json, "factor", &rope->factor));
  if (rope->type == RopeType::kYarn) return ReadYarn(json, rope);
  if (rope->type == RopeType::kLlama3) return ReadLlama3(json, rope);
  return OkStatus();
}

Status ReadRotaryDim(const Json& json, const Json* parameters, int64_t head_dim, int64_t* out) {
  double partial = 1;
  RETURN_IF_ERROR(ReadPositive(json, "partial_rotary_factor", &partial));
  if (parameters != nullptr) {
    RETURN_IF_ERROR(ReadPositive(*parameters, "partial_rotary_factor", &partial));
  }
  *out = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  RETURN_IF_ERROR(ReadSize(json, "rotary_dim", head_dim, *out, out));
  if (partial > 1 || *out % 2 != 0) {
    return InvalidArgumentError("partial_rotary_factor " + std::to_string(partial) +
                                " must be at most 1 and rotate an even number of dimensions");
  }
  return OkStatus();
}

Status CheckListSizes(const RopeConfig& rope, int64_t rotary_dim) {
  if (rope.type != RopeType::kLongRope) return OkStatus();
  for (const auto* list : {&rope.short_factor, &rope.long_factor}) {
    if (list->size() != static_cast<size_t>(rotary_dim / 2)) {
      return InvalidArgumentError("short_factor and long_factor must have " +
                                  std::to_string(rotary_dim / 2) +
                                  " numbers, one for each pair of rotated dimensions; one has " +
                                  std::to_string(list->size()));
    }
  }
  return OkStatus();
}

Status CheckLayerTypes(const Json& parameters) {
  if (!parameters.is_object()) return OkStatus();
  for (const auto& [key, value] : parameters.items()) {
    if (value.is_object() && key != kFull && key != kSliding) {
      return UnimplementedError("a rope for layers of " + key + " is not built, must be for " +
                                kFull + " or " + kSliding);
    }
  }
  return OkStatus();
}

Status CheckLocalRotaryDim(const Json& local, int64_t head_dim, int64_t rotary_dim) {
  double partial = static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
  RETURN_IF_ERROR(ReadPositive(local, "partial_rotary_factor", &partial));
  if (static_cast<int64_t>(static_cast<double>(head_dim) * partial) == rotary_dim) {
    return OkStatus();
  }
  return UnimplementedError("partial_rotary_factor " + std::to_string(partial) + " of " + kSliding +
                            " must be that of the other layers");
}

}  // namespace

StatusOr<RopeConfigs> ReadRope(const Json& json, int64_t head_dim,
                               int64_t max_position_embeddings) {
  RopeConfigs configs;
  RETURN_IF_ERROR(ReadPositive(json, "rope_theta", &configs.rope.theta));
  configs.local_rope.theta = configs.rope.theta;
  RETURN_IF_ERROR(ReadPositive(json, kLocalTheta, &configs.local_rope.theta));
  configs.has_local_rope = Find(json, kLocalTheta) != nullptr;
  const Json* parameters = nullptr;  // for layers without a window
  const Json* local = nullptr;       // for those with one
  auto read = [&](const char* key, const Json& from, RopeConfig* rope) {
    const Status status = ReadScaling(from, json, head_dim, max_position_embeddings, rope);
    return status.ok() ? status : status.WithContext(key);
  };
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = Find(json, key);
    if (value == nullptr) continue;
    const Status types = CheckLayerTypes(*value);
    if (!types.ok()) return types.WithContext(key);
    const Json* global = value->is_object() ? Find(*value, kFull) : nullptr;
    local = value->is_object() ? Find(*value, kSliding) : nullptr;
    if (local != nullptr) {
      RETURN_IF_ERROR(read(key, *local, &configs.local_rope));
      configs.has_local_rope = true;
    }
    if (global == nullptr && local != nullptr) continue;
    parameters = global != nullptr ? global : value;
    RETURN_IF_ERROR(read(key, *parameters, &configs.rope));
  }
  if (configs.rope.type == RopeType::kProportional) {
    configs.rotary_dim = head_dim;
  } else {
    RETURN_IF_ERROR(ReadRotaryDim(json, parameters, head_dim, &configs.rotary_dim));
  }
  if (local != nullptr && configs.local_rope.type != RopeType::kProportional) {
    RETURN_IF_ERROR(CheckLocalRotaryDim(*local, head_dim, configs.rotary_dim));
  }
  RETURN_IF_ERROR(CheckListSizes(configs.rope, configs.rotary_dim));
  RETURN_IF_ERROR(CheckListSizes(configs.local_rope, configs.rotary_dim));
  return configs;
}

}  // namespace tandem
