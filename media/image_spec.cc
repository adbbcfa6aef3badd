#include "media/image_spec.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/json_text.h"
#include "common/packed_bytes.h"
#include "common/read_file.h"
#include "common/shorten.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFileBytes = 16 << 20;
constexpr int64_t kMaxPixelLimit = int64_t{1} << 40;
constexpr int32_t kMaxSide = 1 << 12;  // of a patch, or of an image of fixed size
constexpr int64_t kDefaultMinPixels = 56 * 56, kDefaultMaxPixels = 28 * 28 * 1280;
constexpr int32_t kDefaultGemmaTokens = 256;
constexpr std::array<float, 3> kClipMean = {0.48145466F, 0.4578275F, 0.40821073F};
constexpr std::array<float, 3> kClipStd = {0.26862954F, 0.26130258F, 0.27577711F};
constexpr std::array<float, 3> kHalf = {0.5F, 0.5F, 0.5F};
constexpr const char* kPreprocessor = "preprocessor_config.json";
constexpr const char* kConfig = "config.json";
constexpr const char* kKwargs = "mm_processor_kwargs";

struct Row {
  const char* model_type;
  ImageFamily family;
};

constexpr Row kFamilies[] = {
    {"qwen2_vl", ImageFamily::kQwenVl}, {"qwen2_5_vl", ImageFamily::kQwenVl},
    {"qwen3_vl", ImageFamily::kQwenVl}, {"qwen3_vl_moe", ImageFamily::kQwenVl},
    {"qwen3_5", ImageFamily::kQwenVl},  {"qwen3_5_moe", ImageFamily::kQwenVl},
    {"gemma3", ImageFamily::kGemma3},
};

// ---- values of a JSON object, with messages that begin with the place ----

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status Wrong(const std::string& place, const std::string& key, const std::string& must_be) {
  return InvalidArgumentError(place + ": " + key + " must be " + must_be);
}

// The integer, in [1, most]; `otherwise` where there is none.
StatusOr<int64_t> Size(const std::string& place, const Json& object, const char* key, int64_t most,
                       int64_t otherwise) {
  const Json* value = Find(object, key);
  if (value == nullptr) return otherwise;
  // What is beyond int64 becomes negative.
  if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > most) {
    return Wrong(place, key, "an integer from 1 to " + std::to_string(most));
  }
  return value->get<int64_t>();
}

StatusOr<std::array<float, 3>> Channels(const Json& object, const char* key, double least,
                                        const std::array<float, 3>& otherwise) {
  const Json* value = Find(object, key);
  if (value == nullptr) return otherwise;
  const Status wrong = Wrong(kPreprocessor, key, "three numbers, or one, in range");
  std::array<float, 3> channels = {};
  for (size_t i = 0; i < channels.size(); ++i) {
    if (value->is_array() && value->size() != channels.size()) return wrong;
    const Json& number = value->is_array() ? (*value)[i] : *value;
    if (!number.is_number()) return wrong;
    const auto channel = number.get<double>();
    if (!(channel >= least && channel <= 1e6)) return wrong;
    channels[i] = static_cast<float>(channel);
  }
  return channels;
}

// The key is absent, or what happens anyway.
Status MustBe(const std::string& place, const Json& object, const char* key, bool wanted) {
  const Json* value = Find(object, key);
  if (value == nullptr || *value == Json(wanted)) return OkStatus();
  return InvalidArgumentError(place + ": " + key + " " + Shorten(value->dump()) +
                              " is not supported");
}

// ---- the model's files ----

StatusOr<Json> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxFileBytes));
  if (text.empty()) return Json();
  Json json = Json::parse(WithoutInfinities(text), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError(path + " is not a JSON object");
  return json;
}

StatusOr<Json> ReadPreprocessor(const std::string& model_dir) {
  ASSIGN_OR_RETURN(Json json, ReadObject(model_dir + "/" + kPreprocessor));
  if (!json.is_null()) return json;
  ASSIGN_OR_RETURN(const Json processor, ReadObject(model_dir + "/processor_config.json"));
  const Json* nested = Find(processor, "image_processor");
  if (nested != nullptr && nested->is_object()) return *nested;
  return NotFoundError("the model's folder has no " + std::string(kPreprocessor) +
                       ", which states how images are prepared");
}

std::optional<ImageFamily> FamilyOf(const std::string& model_type) {
  for (const Row& row : kFamilies) {
    if (model_type == row.model_type) return row.family;
  }
  return std::nullopt;
}

Status CheckPreprocessor(const Json& json) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) {
    RETURN_IF_ERROR(MustBe(kPreprocessor, json, key, true));
  }
  RETURN_IF_ERROR(MustBe(kPreprocessor, json, "do_pan_and_scan", false));
  const Json* factor = Find(json, "rescale_factor");
  if (factor != nullptr &&
      !(factor->is_number() && std::abs(factor->get<double>() * 255 - 1) < 1e-6)) {
    return Wrong(kPreprocessor, "rescale_factor", "1/255");
  }
  return OkStatus();
}

StatusOr<int32_t> ReadResample(const Json& json, int32_t otherwise) {
  const Json* value = Find(json, "resample");
  if (value == nullptr) return otherwise;
  if (*value == Json(kBilinear)) return kBilinear;
  if (*value == Json(kBicubic)) return kBicubic;
  return Wrong(kPreprocessor, "resample", "2 (bilinear) or 3 (bicubic)");
}

// A size that two files have: where both have it they must agree.
StatusOr<int32_t> SharedSize(const Json& json, const char* key, const Json& config,
                             const char* config_key, int64_t otherwise) {
  ASSIGN_OR_RETURN(const int64_t theirs, Size(kConfig, config, config_key, kMaxSide, otherwise));
  ASSIGN_OR_RETURN(const int64_t size, Size(kPreprocessor, json, key, kMaxSide, theirs));
  if (Find(config, config_key) != nullptr && size != theirs) {
    return InvalidArgumentError(std::string(kPreprocessor) + ": " + key + " is " +
                                std::to_string(size) + ", " + config_key + " of " + kConfig +
                                " is " + std::to_string(theirs));
  }
  return static_cast<int32_t>(size);
}

// min_pixels and max_pixels, or the same in "size" under either of two names.
Status ReadPixelLimits(const std::string& place, const Json& json, ImageSpec* spec) {
  const auto read = [&](const Json& object, const char* least, const char* most) -> Status {
    ASSIGN_OR_RETURN(spec->min_pixels,
                     Size(place, object, least, kMaxPixelLimit, spec->min_pixels));
    ASSIGN_OR_RETURN(spec->max_pixels, Size(place, object, most, kMaxPixelLimit, spec->max_pixels));
    return OkStatus();
  };
  if (const Json* size = Find(json, "size"); size != nullptr) {
    if (!size->is_object()) {
      return Wrong(place, "size", R"(an object with "shortest_edge" and "longest_edge")");
    }
    RETURN_IF_ERROR(read(*size, "min_pixels", "max_pixels"));
    RETURN_IF_ERROR(read(*size, "shortest_edge", "longest_edge"));
  }
  RETURN_IF_ERROR(read(json, "min_pixels", "max_pixels"));
  if (spec->min_pixels <= spec->max_pixels) return OkStatus();
  return InvalidArgumentError(place + ": min_pixels is " + std::to_string(spec->min_pixels) +
                              ", more than max_pixels, " + std::to_string(spec->max_pixels));
}

StatusOr<ImageSpec> ReadQwen(const Json& config, const Json& json) {
  const Json& vision = config["vision_config"];
  ImageSpec spec;
  spec.family = ImageFamily::kQwenVl;
  ASSIGN_OR_RETURN(spec.patch_size, SharedSize(json, "patch_size", vision, "patch_size", 14));
  ASSIGN_OR_RETURN(spec.merge_size,
                   SharedSize(json, "merge_size", vision, "spatial_merge_size", 2));
  ASSIGN_OR_RETURN(spec.temporal_patch_size,
                   SharedSize(json, "temporal_patch_size", vision, "temporal_patch_size", 2));
  // A patch's row is then at most 3 * 16 * 256 * 256 numbers.
  if (spec.patch_size > 256 || spec.merge_size > 16 || spec.temporal_patch_size > 16) {
    return Wrong(kPreprocessor, "patch_size, merge_size and temporal_patch_size",
                 "at most 256, 16 and 16");
  }
  spec.min_pixels = kDefaultMinPixels;
  spec.max_pixels = kDefaultMaxPixels;
  RETURN_IF_ERROR(ReadPixelLimits(kPreprocessor, json, &spec));
  ASSIGN_OR_RETURN(spec.mean, Channels(json, "image_mean", -1e6, kClipMean));
  ASSIGN_OR_RETURN(spec.std, Channels(json, "image_std", 1e-6, kClipStd));
  ASSIGN_OR_RETURN(spec.resample, ReadResample(json, kBicubic));
  return spec;
}

StatusOr<ImageSpec> ReadGemma3(const Json& config, const Json& json) {
  const Json& vision = config["vision_config"];
  ImageSpec spec;
  spec.family = ImageFamily::kGemma3;
  const Json* size = Find(json, "size");
  const Json absent;
  ASSIGN_OR_RETURN(spec.height, SharedSize(size == nullptr ? absent : *size, "height", vision,
                                           "image_size", 224));
  ASSIGN_OR_RETURN(
      spec.width, SharedSize(size == nullptr ? absent : *size, "width", vision, "image_size", 224));
  ASSIGN_OR_RETURN(spec.num_tokens, SharedSize(json, "image_seq_length", config,
                                               "mm_tokens_per_image", kDefaultGemmaTokens));
  ASSIGN_OR_RETURN(spec.mean, Channels(json, "image_mean", -1e6, kHalf));
  ASSIGN_OR_RETURN(spec.std, Channels(json, "image_std", 1e-6, kHalf));
  ASSIGN_OR_RETURN(spec.resample, ReadResample(json, kBilinear));
  return spec;
}

// ---- mm_processor_kwargs ----

// What a value of true, or false, of this key asks for happens anyway.
struct HarmlessRow {
  const char* key;
  bool value;
};

constexpr HarmlessRow kHarmless[] = {{"do_resize", true},        {"do_rescale", true},
                                     {"do_normalize", true},     {"do_convert_rgb", true},
                                     {"do_pan_and_scan", false}, {"use_fast", true}};

StatusOr<ImageSpec> Changed(ImageSpec spec, const Json& kwargs) {
  if (kwargs.is_null()) return spec;
  if (!kwargs.is_object()) return InvalidArgumentError(std::string(kKwargs) + " must be an object");
  const bool has_limits = spec.family == ImageFamily::kQwenVl;
  for (const auto& entry : kwargs.items()) {
    const std::string& key = entry.key();
    const Json& value = entry.value();
    if (value.is_null()) continue;
    if (has_limits && (key == "min_pixels" || key == "max_pixels")) continue;
    if (has_limits && key == "size") {
      for (const auto& item : value.items()) {
        if (item.key() == "shortest_edge" || item.key() == "longest_edge") continue;
        return Wrong(kKwargs, "size", R"(an object with "shortest_edge" and "longest_edge")");
      }
      continue;
    }
    const HarmlessRow* row = std::find_if(std::begin(kHarmless), std::end(kHarmless),
                                          [&](const HarmlessRow& r) { return key == r.key; });
    if (row == std::end(kHarmless)) {
      return InvalidArgumentError(std::string(kKwargs) + ": " + Shorten(key) + " is not known; " +
                                  (has_limits ? "this model takes min_pixels, max_pixels and size"
                                              : "this model takes none that changes an image"));
    }
    RETURN_IF_ERROR(MustBe(kKwargs, kwargs, row->key, row->value));
  }
  if (has_limits) RETURN_IF_ERROR(ReadPixelLimits(kKwargs, kwargs, &spec));
  return spec;
}

}  // namespace

StatusOr<ImageSpec> ReadImageSpec(const std::string& model_dir) {
  std::error_code error;
  if (std::filesystem::is_regular_file(model_dir, error)) {
    return NotFoundError("a model of one file takes no images");
  }
  ASSIGN_OR_RETURN(const Json config, ReadObject(model_dir + "/" + kConfig));
  const Json* vision = Find(config, "vision_config");
  if (vision == nullptr || !vision->is_object()) {
    return NotFoundError("the model takes no images");
  }
  const Json* type = Find(config, "model_type");
  const std::string model_type =
      type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
  const std::optional<ImageFamily> family = FamilyOf(model_type);
  if (!family) {
    return NotFoundError("images are not supported for models of the type \"" + model_type + "\"");
  }
  ASSIGN_OR_RETURN(const Json json, ReadPreprocessor(model_dir));
  RETURN_IF_ERROR(CheckPreprocessor(json));
  return *family == ImageFamily::kGemma3 ? ReadGemma3(config, json) : ReadQwen(config, json);
}

StatusOr<ImageSpec> ApplyKwargs(const ImageSpec& spec, const nlohmann::json& mm_processor_kwargs) {
  StatusOr<ImageSpec> changed = Changed(spec, mm_processor_kwargs);
  if (!changed.ok()) return Status(changed.status()).WithParam(kKwargs);
  return changed;
}

std::string PackImageSpec(const ImageSpec& spec) {
  std::array<char, 256> memory;
  ByteWriter writer(memory);
  writer.Fixed(spec.family);
  for (const int32_t number : {spec.patch_size, spec.merge_size, spec.temporal_patch_size,
                               spec.height, spec.width, spec.num_tokens, spec.resample}) {
    writer.Signed(number);
  }
  writer.Signed(spec.min_pixels);
  writer.Signed(spec.max_pixels);
  writer.Fixed(spec.mean);
  writer.Fixed(spec.std);
  CHECK(writer.fits());
  return std::string(memory.data(), writer.size());
}

StatusOr<ImageSpec> UnpackImageSpec(std::string_view packed) {
  ByteReader reader(packed);
  ImageSpec spec;
  spec.family = reader.Fixed<ImageFamily>();
  for (int32_t* number : {&spec.patch_size, &spec.merge_size, &spec.temporal_patch_size,
                          &spec.height, &spec.width, &spec.num_tokens, &spec.resample}) {
    *number = static_cast<int32_t>(reader.Signed());
  }
  spec.min_pixels = reader.Signed();
  spec.max_pixels = reader.Signed();
  spec.mean = reader.Fixed<std::array<float, 3>>();
  spec.std = reader.Fixed<std::array<float, 3>>();
  if (!reader.ok() || !reader.empty() || spec.family > ImageFamily::kGemma3) {
    return DataLossError("a malformed image spec");
  }
  return spec;
}

}  // namespace tandem
