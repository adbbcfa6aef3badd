#include "frontend/media_flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/log.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

Status Bad(std::string_view flag, const std::string& given, const std::string& what) {
  return InvalidArgumentError("--" + std::string(flag) + " " + given + ": " + what);
}

StatusOr<nlohmann::json> ParseObject(std::string_view flag, const std::string& text) {
  if (text.empty()) return nlohmann::json::object();
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Bad(flag, text, "must be a JSON object");
  return object;
}

// {"image": 4}, or {"image": {"count": 4, …}}, whose other keys size dummy images of vLLM's start.
StatusOr<int64_t> MaxImages(const MediaFlags& flags) {
  constexpr const char* kFlag = "limit-mm-per-prompt";
  ASSIGN_OR_RETURN(const nlohmann::json limits, ParseObject(kFlag, flags.limit_mm_per_prompt));
  int64_t max_images = ImageInputs().max_images;
  for (const auto& [modality, given] : limits.items()) {
    if (modality != "image" && modality != "video" && modality != "audio") {
      return Bad(kFlag, flags.limit_mm_per_prompt,
                 modality +
                     " is no modality; known: image, and video and audio, which are never "
                     "served");
    }
    const nlohmann::json count =
        given.is_object() ? given.value("count", nlohmann::json(max_images)) : given;
    if (!count.is_number_integer() || count < 0 || count > 1 << 20) {
      return Bad(kFlag, flags.limit_mm_per_prompt,
                 "the limit of " + modality + " must be an integer of 0 or more");
    }
    if (modality == "image") max_images = count.get<int64_t>();
  }
  return flags.language_model_only ? 0 : max_images;
}

// What an image is decoded to: always RGB, over white.
Status CheckIoKwargs(const MediaFlags& flags) {
  constexpr const char* kFlag = "media-io-kwargs";
  ASSIGN_OR_RETURN(const nlohmann::json kwargs, ParseObject(kFlag, flags.media_io_kwargs));
  for (const auto& [modality, given] : kwargs.items()) {
    if (modality != "image" || !given.is_object()) {
      return Bad(kFlag, flags.media_io_kwargs,
                 modality + " has no effect: only images are served; known is image, an object");
    }
    for (const auto& [key, value] : given.items()) {
      const bool is_mode = key == "image_mode" && value == "RGB";
      const bool is_white =
          key == "rgba_background_color" && value == nlohmann::json::array({255, 255, 255});
      if (is_mode || is_white) continue;
      return Bad(kFlag, flags.media_io_kwargs,
                 "image." + key + " is not supported: images are decoded to RGB over white");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckMediaFlags(const MediaFlags& flags) {
  RETURN_IF_ERROR(MaxImages(flags).status());
  RETURN_IF_ERROR(CheckIoKwargs(flags));
  return ParseObject("mm-processor-kwargs", flags.mm_processor_kwargs).status();
}

std::vector<std::string_view> IdleMediaFlags(const MediaFlags& flags) {
  std::vector<std::string_view> names;
  if (!flags.mm_processor_kwargs.empty()) names.emplace_back("mm-processor-kwargs");
  if (!flags.media_io_kwargs.empty()) names.emplace_back("media-io-kwargs");
  if (flags.trust_request_mm_kwargs) names.emplace_back("trust-request-mm-kwargs");
  if (!flags.access.domains.empty()) names.emplace_back("allowed-media-domains");
  if (!flags.access.local_path.empty()) names.emplace_back("allowed-local-media-path");
  return names;
}

StatusOr<std::optional<ImageInputs>> ReadImageInputs(const std::string& model,
                                                     const MediaFlags& flags,
                                                     const Tokenizer& tokenizer) {
  ImageInputs inputs;
  StatusOr<ImageSpec> spec = ReadImageSpec(model);
  if (spec.status().code() == StatusCode::kNotFound) {
    LOG_INFO << "images are refused: " << spec.status().message();
    return std::optional<ImageInputs>();
  }
  if (!spec.ok()) return spec.status();
  ASSIGN_OR_RETURN(const nlohmann::json kwargs,
                   ParseObject("mm-processor-kwargs", flags.mm_processor_kwargs));
  spec = ApplyKwargs(*spec, kwargs);
  if (!spec.ok()) return spec.status().WithContext("--mm-processor-kwargs");
  inputs.spec = *std::move(spec);
  ASSIGN_OR_RETURN(inputs.tokens, ImageTokens::Read(model, inputs.spec.family, tokenizer));
  ASSIGN_OR_RETURN(inputs.max_images, MaxImages(flags));
  inputs.trusts_kwargs = flags.trust_request_mm_kwargs;
  inputs.max_bytes = flags.max_image_input_bytes;
  return std::optional<ImageInputs>(std::move(inputs));
}

}  // namespace tandem
