#include "engine_core/compilation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFlag = "--compilation-config";
constexpr std::string_view kCompilerKeys[] = {"mode",
                                              "level",
                                              "backend",
                                              "custom_ops",
                                              "splitting_ops",
                                              "compile_sizes",
                                              "compile_ranges_endpoints",
                                              "inductor_compile_config",
                                              "inductor_passes",
                                              "pass_config",
                                              "cudagraph_num_of_warmups",
                                              "cudagraph_copy_inputs",
                                              "cudagraph_specialize_lora",
                                              "use_inductor_graph_partition",
                                              "dynamic_shapes_config",
                                              "local_cache_dir",
                                              "cache_dir",
                                              "compile_cache_save_format",
                                              "debug_dump_path",
                                              "ir_enable_torch_wrap",
                                              "compile_mm_encoder",
                                              "cudagraph_mm_encoder",
                                              "encoder_cudagraph_token_budgets",
                                              "encoder_cudagraph_max_vision_items_per_batch",
                                              "encoder_cudagraph_max_frames_per_batch",
                                              "cudagraph_decoder_replay",
                                              "decoder_replay_cudagraph_capture_sizes",
                                              "decoder_replay_trim_threshold",
                                              "fast_moe_cold_start",
                                              "use_inductor",
                                              "use_cudagraph"};

Status Bad(std::string_view key, const Json& value, std::string_view allowed) {
  return InvalidArgumentError(std::string(kFlag) + ": " + std::string(key) + " is " +
                              value.dump(-1, ' ', true, Json::error_handler_t::replace) +
                              ", must be " + std::string(allowed));
}

// FULL and PIECEWISE would capture prefills, or parts of a step; here it is whole decode steps.
Status SetMode(const Json& value, bool is_cuda, CompilationConfig* config) {
  constexpr std::string_view kAllowed =
      "FULL_DECODE_ONLY (decode steps are captured, as is the default here) or NONE";
  if (value.is_null()) return OkStatus();
  if (!value.is_string()) return Bad("cudagraph_mode", value, kAllowed);
  const std::string mode = ToLower(value.get<std::string>());
  if (mode == "none") {
    config->captures = false;
  } else if (mode == "full_and_piecewise") {
    config->note = "cudagraph_mode FULL_AND_PIECEWISE: decode steps are captured, prefills are not";
  } else if (mode == "full" || mode == "piecewise") {
    if (is_cuda) return Bad("cudagraph_mode", value, kAllowed);
    config->note = "cudagraph_mode " + value.get<std::string>() + ": only a GPU has graphs";
  } else if (mode != "full_decode_only") {
    return Bad("cudagraph_mode", value, kAllowed);
  }
  return OkStatus();
}

Status SetSizes(const Json& value, CompilationConfig* config) {
  if (value.is_null()) return OkStatus();
  const auto is_size = [](const Json& size) {
    return size.is_number_integer() && size >= 1 && size <= 65536;
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_size)) {
    return Bad("cudagraph_capture_sizes", value, "a list of numbers from 1 to 65536");
  }
  config->capture_sizes = value.get<std::vector<int64_t>>();
  if (config->capture_sizes.empty()) config->captures = false;
  return OkStatus();
}

Status SetKey(const std::string& key, const Json& value, bool is_cuda, CompilationConfig* config) {
  if (key == "cudagraph_mode") return SetMode(value, is_cuda, config);
  if (key == "cudagraph_capture_sizes") return SetSizes(value, config);
  if (key == "max_cudagraph_capture_size") {
    if (value.is_null()) return OkStatus();
    if (!value.is_number_integer() || value < 0 || value > 65536) {
      return Bad(key, value, "a number from 0 to 65536");
    }
    config->max_capture_size = value.get<int64_t>();
    return OkStatus();
  }
  if (std::ranges::find(kCompilerKeys, key) == std::end(kCompilerKeys)) {
    return InvalidArgumentError(std::string(kFlag) + ": no key is called " + key +
                                "; those with an effect are cudagraph_mode, "
                                "cudagraph_capture_sizes and max_cudagraph_capture_size");
  }
  config->ignored.push_back(key);
  return OkStatus();
}

}  // namespace

StatusOr<CompilationConfig> ParseCompilationConfig(const std::string& text,
                                                   std::optional<int64_t> level, bool is_cuda) {
  CompilationConfig config;
  if (level == 1 && is_cuda) {
    return InvalidArgumentError(
        "--optimization-level 1: graphs of parts of a step are not built; 0 captures no graphs, 2 "
        "and 3 capture decode steps");
  }
  if (level == 0) config.captures = false;
  if (text.empty()) return config;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgumentError(std::string(kFlag) + " " + text + ": must be a JSON object");
  }
  for (const auto& [key, value] : json.items()) {
    RETURN_IF_ERROR(SetKey(key, value, is_cuda, &config));
  }
  return config;
}

}  // namespace tandem
