#include "engine_core/weights/json_file.h"

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

constexpr int kMaxDepth = 32;

// Python writes infinities as words that JSON does not have. In their place numbers beyond any that
// matters, of the same length.
std::string WithoutInfinities(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kNumber = "1.00e308";
  std::string result(text);
  bool is_in_string = false;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] == '\\' && is_in_string) {
      ++i;
    } else if (result[i] == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string && result.compare(i, kWord.size(), kWord) == 0) {
      result.replace(i, kWord.size(), kNumber);
    }
  }
  return result;
}

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
