#include "engine_core/weights/json_file.h"

#include <nlohmann/json.hpp>

#include "common/json_text.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 32;

}  // namespace

StatusOr<nlohmann::json> ParseJsonObject(std::string_view text) {
  using Json = nlohmann::json;
  bool too_deep = false;
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, limit_depth, /*allow_exceptions=*/false);
  if (json.is_discarded() && !too_deep && text.find("Infinity") != std::string_view::npos) {
    json = Json::parse(WithoutInfinities(text), limit_depth, /*allow_exceptions=*/false);
  }
  if (too_deep) return InvalidArgumentError("JSON is nested too deep");
  if (json.is_discarded() || !json.is_object()) return InvalidArgumentError("not a JSON object");
  return json;
}

}  // namespace tandem
