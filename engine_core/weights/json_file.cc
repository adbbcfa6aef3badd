#include "engine_core/weights/json_file.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/json_text.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 32;

// Finds a key that an object has twice, of which the parser keeps the last.
class RepeatedKey {
 public:
  void See(nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) objects_.emplace_back();
    if (event == Event::object_end) objects_.pop_back();
    if (event != Event::key || !found_.empty()) return;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!objects_.back().insert(key).second) found_ = "key " + key + " occurs twice";
  }
  // "" where there is none.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::set<std::string>> objects_;  // that are open
  std::string found_;
};

StatusOr<nlohmann::json> Parse(std::string_view text, RepeatedKey* repeated) {
  using Json = nlohmann::json;
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    too_deep = too_deep || depth > kMaxDepth;
    if (repeated != nullptr) repeated->See(event, parsed);
    return !too_deep;
  };
  Json json = Json::parse(text, look, /*allow_exceptions=*/false);
  if (json.is_discarded() && !too_deep && text.find("Infinity") != std::string_view::npos) {
    if (repeated != nullptr) *repeated = RepeatedKey();
    json = Json::parse(WithoutInfinities(text), look, /*allow_exceptions=*/false);
  }
  if (too_deep) return InvalidArgumentError("JSON is nested too deep");
  if (json.is_discarded() || !json.is_object()) return InvalidArgumentError("not a JSON object");
  return json;
}

}  // namespace

StatusOr<nlohmann::json> ParseJsonObject(std::string_view text) { return Parse(text, nullptr); }

StatusOr<nlohmann::json> ParseJsonObjectOfDistinctKeys(std::string_view text) {
  RepeatedKey repeated;
  ASSIGN_OR_RETURN(nlohmann::json json, Parse(text, &repeated));
  if (!repeated.found().empty()) return InvalidArgumentError(repeated.found());
  return json;
}

}  // namespace tandem
