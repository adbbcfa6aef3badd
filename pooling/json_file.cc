#include "pooling/json_file.h"

#include <cstdint>

#include "common/json_text.h"
#include "common/read_file.h"

namespace tandem {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;

}  // namespace

StatusOr<nlohmann::json> ParseModelJson(const std::string& name, std::string_view text) {
  auto json = nlohmann::json::parse(WithoutInfinities(text), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgumentError(name + " is not JSON");
  return json;
}

StatusOr<nlohmann::json> ReadModelJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxFileBytes));
  if (text.empty()) return nlohmann::json();
  return ParseModelJson(path, text);
}

}  // namespace tandem
